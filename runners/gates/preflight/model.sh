# The files of a model folder: size and hash of each, so that nodes can be compared.
#   sh -c THIS model ROOT FOLDER sampled|full
# `sampled`: sha256 over the first and the last MiB of a file. Hashes are kept in ROOT/cache/model by path, size, mtime
# and inode, so a second look reads nothing. Lines, tabs between: file NAME SIZE HASH; `end COUNT`.
root=$1 folder=$2 how=$3
export LC_ALL=C
umask 077
mkdir -p -- "$root/cache/model" || exit 73
cd -- "$folder" 2>/dev/null || { printf 'none\t%s is not there, or may not be read\n' "$folder"; exit 0; }
key=$(pwd -P | sha256sum | cut -c 1-24)
cache=$root/cache/model/$key
touch -- "$cache" 2>/dev/null
set -f
known=$(cat -- "$cache" 2>/dev/null)
set +f
count=0 running=0 tab='	' newline='
'
hash_of() { # FILE SIZE
  if [ "$how" = full ] || [ "$2" -le 2097152 ]; then
    sha256sum <"$1" | cut -c 1-64
  else
    { head -c 1048576 -- "$1"; tail -c 1048576 -- "$1"; } | sha256sum | cut -c 1-64
  fi
}
look() { # FILE
  set -- "$1" $(stat -L -c '%s %Y %i' -- "$1" 2>/dev/null)
  [ $# = 4 ] || { printf 'file\t%s\t-\tunreadable\n' "$1"; return; }
  mark="$how $2 $3 $4 $1"
  case "$newline$known$newline" in
    *"$newline$mark$tab"*)
      hash=${known#*"$mark$tab"}
      hash=${hash%%"$newline"*}
      ;;
    *)
      hash=$(hash_of "$1" "$2") || hash=unreadable
      [ -n "$hash" ] && [ "$hash" != unreadable ] && printf '%s\t%s\n' "$mark" "$hash" >>"$cache"
      ;;
  esac
  printf 'file\t%s\t%s\t%s\n' "$1" "$2" "${hash:-unreadable}"
}
for file in * */*; do
  [ -f "$file" ] || continue
  case $file in *"$tab"* | *"$newline"*) continue ;; esac
  count=$((count + 1))
  [ $count -le 2000 ] || break
  look "$file" &
  running=$((running + 1))
  [ $running -lt 4 ] || { wait; running=0; }
done
wait
printf 'end\t%s\n' "$count"
