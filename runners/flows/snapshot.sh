# What a run may have changed on a node: GPUs, containers, network. sh -c THIS snapshot ENGINE VENDOR "NETDEV ..."
# Answers as runners/gates/preflight/survey.sh does.
engine=$1 vendor=$2 netdevs=$3
sys=${TWINRAIL_SYS:-/sys}
export LC_ALL=C
tool() { # NAME SECONDS COMMAND...
  name=$1 limit=$2
  shift 2
  command -v "$1" >/dev/null 2>&1 || return
  said=$(timeout -k 1 "$limit" "$@" </dev/null 2>&1) || said="exit $?: $said"
  printf '#block\t%s\n%s\n#end\n' "$name" "$said"
}
case $vendor in
  nvidia) tool nvidia_smi 15 nvidia-smi ;;
  hygon) tool hy_smi 15 hy-smi ;;
  amd) tool rocm_smi 15 rocm-smi ;;
esac
[ -z "$engine" ] || tool containers 15 "$engine" ps -a --no-trunc --format '{{.ID}}|{{.Names}}|{{.Image}}|{{.Status}}'
for net in $netdevs; do
  for name in mtu speed operstate; do
    value=
    { read -r value <"$sys/class/net/$net/$name"; } 2>/dev/null
    [ -z "$value" ] || printf '#row\tnet\t%s\t%s\t%s\n' "$net" "$name" "$value"
  done
done
tool addresses 5 ip -o -4 addr show
printf 'survey.end\tyes\n'
