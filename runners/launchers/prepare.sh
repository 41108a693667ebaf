# Before a rank starts: a folder for what NCCL says, and the GIDs of its rails. sh -c THIS prepare ROOT JOB "HCA ..."
# Answers `folder PATH`, then rows as runners/gates/preflight/survey.sh has them.
root=$1 job=$2 hcas=$3
sys=${TWINRAIL_SYS:-/sys}
mkdir -p -- "$root/nccl/$job" && chmod 1777 "$root/nccl/$job" && printf 'nccl.folder\t%s\n' "$(cd -- "$root/nccl/$job" && pwd -P)"
first() {
  value=
  { read -r value <"$1"; } 2>/dev/null || [ -n "$value" ]
}
for hca in $hcas; do
  for file in "$sys/class/infiniband/$hca"/ports/1/gids/*; do
    first "$file" || continue
    gid=$value index=${file##*/} type=
    first "$sys/class/infiniband/$hca/ports/1/gid_attrs/types/$index" && type=$value
    printf '#row\tgid\t%s\t%s\t%s\t%s\n' "$hca" "$index" "$type" "$gid"
  done
done
