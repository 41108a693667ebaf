# What a node has for a container: sh -c THIS look ENGINE IMAGE VENDOR "HCA HCA" PATH...
# Lines: `podman VERSION` when ENGINE is podman under whatever name; `image ID DIGEST...` or `refused CODE TEXT`; `device PATH`; `missing PATH`.
engine=$1 image=$2 vendor=$3 hcas=$4
shift 4
if ! command -v "$engine" >/dev/null 2>&1; then
  echo "refused 127 no such command"
else
  said=$(timeout -k 2 20 "$engine" image inspect --format '{{.Id}}{{range .RepoDigests}} {{.}}{{end}}' "$image" 2>&1)
  code=$?
  said=$(printf '%s' "$said" | tr '\n' ' ')
  if [ $code = 0 ]; then
    echo "image $said"
    podman=$(timeout -k 2 10 "$engine" info --format '{{.Version.Version}}' 2>/dev/null) && echo "podman $podman"
  else
    echo "refused $code $said"
  fi
fi
for path in "$@"; do [ -e "$path" ] || echo "missing $path"; done
has() { [ ! -e "$1" ] || echo "device $1"; }
if [ -n "$hcas" ]; then
  verbs=
  for hca in $hcas; do
    for path in "${TWINRAIL_SYS:-/sys}/class/infiniband/$hca/device/infiniband_verbs"/uverbs*; do
      [ ! -e "$path" ] || verbs="$verbs /dev/infiniband/${path##*/}"
    done
  done
  for path in ${verbs:-/dev/infiniband/uverbs*} /dev/infiniband/rdma_cm; do has "$path"; done
fi
case $vendor in
  amd | hygon) for path in /dev/kfd /dev/mkfd /dev/dri; do has "$path"; done ;;
esac
