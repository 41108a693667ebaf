# What a process of the server will find: asked in a container of its image, or on the node itself. Reads, changes nothing.
#   sh -c THIS inside PYTHON
# Answers as survey.sh does.
python=$1
export LC_ALL=C
row() {
  printf '#row'
  for cell in "$@"; do printf '\t%s' "$cell"; done
  echo
}
[ -r /proc/self/limits ] && printf '#block\tlimits\n%s\n#end\n' "$(cat /proc/self/limits)"
for dir in ${TWINRAIL_SYS:-/sys}/class/infiniband/*; do
  [ -e "$dir" ] || continue
  state=
  { read -r state <"$dir/ports/1/state"; } 2>/dev/null
  row hca "${dir##*/}" state "$state"
done
for path in /dev/infiniband/* /dev/nvidia[0-9]* /dev/kfd /dev/mkfd; do [ ! -e "$path" ] || row device "$path"; done
for name in nsys ncu numactl ibv_devinfo; do
  path=$(command -v "$name" 2>/dev/null) && row tool "$name" "$path"
done
for name in CUDA_VERSION NCCL_VERSION VLLM_VERSION SGLANG_VERSION; do
  eval "value=\${$name-}"
  [ -z "$value" ] || row package "env:$name" "$value"
done
if command -v "$python" >/dev/null 2>&1; then
  timeout -k 1 40 "$python" -c '
import importlib.metadata as m, platform
print("#row\tpackage\tpython\t" + platform.python_version())
seen = set()
for d in m.distributions():
    name = str(d.metadata["Name"]).lower().replace("_", "-")
    if name in seen:
        continue
    seen.add(name)
    print("#row\tpackage\t" + name + "\t" + str(d.version))
    try:
        from json import loads
        commit = loads(d.read_text("direct_url.json") or "{}").get("vcs_info", {}).get("commit_id")
    except Exception:
        commit = None
    if commit:
        print("#row\tpackage\t" + name + ".commit\t" + str(commit))
' 2>/dev/null
else
  printf '#none\tpackages\t%s is not there\n' "$python"
fi
printf 'survey.end\tyes\n'
