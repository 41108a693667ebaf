# All flags that an engine's version knows, by its own help: sh -c THIS inside PYTHON COMMAND...
export LC_ALL=C COLUMNS=200
shift
command -v "$1" >/dev/null 2>&1 || { printf '#none\thelp\t%s is not there\n' "$1"; exit 0; }
said=$(CUDA_VISIBLE_DEVICES= timeout -k 2 100 "$@" </dev/null 2>/dev/null)
code=$?
if [ $code != 0 ] || [ -z "$said" ]; then # --help=all is of vLLM 0.10 on
  for last in "$@"; do :; done
  if [ "$last" = --help=all ]; then
    n=$#
    while [ $n -gt 1 ]; do set -- "$@" "$1"; shift; n=$((n - 1)); done
    shift
    said=$(CUDA_VISIBLE_DEVICES= timeout -k 2 100 "$@" --help </dev/null 2>/dev/null)
    code=$?
  fi
fi
if [ $code = 0 ] && [ -n "$said" ]; then printf '#block\thelp\n%s\n#end\n' "$said"
else printf '#none\thelp\t%s --help ended with %s\n' "$1" "$code"
fi
