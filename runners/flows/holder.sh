# Who listens on a TCP port of this node: sh -c THIS holder PORT [ENGINE CONTAINER]
# Lines: `listens INODE`; `pid PID SESSION ANCESTOR,... USER COMMAND` for each process seen to hold such a socket;
# `container PID` (its first process here) and `inside INODE` for a socket that a process in the container holds.
port=$(printf '%04X' "$1") engine=$2 container=$3
export LC_ALL=C
inodes=' '
for table in /proc/net/tcp /proc/net/tcp6; do
  {
    while read -r _ local _ state _ _ _ _ _ inode _; do
      [ "$state" = 0A ] && [ "${local##*:}" = "$port" ] && inodes="$inodes$inode "
    done <$table
  } 2>/dev/null
done
[ "$inodes" != ' ' ] || exit 0
for inode in $inodes; do echo "listens $inode"; done
held() { # from `ls -l /proc/PID/fd ...` on stdin: PID INODE
  while read -r word rest; do
    case "$word $rest" in
      /proc/*/fd:*) pid=${word#/proc/} pid=${pid%/fd:} ;;
      *'-> socket:['*)
        inode=${rest##*'socket:['}
        inode=${inode%]}
        case $inodes in *" $inode "*) echo "$pid $inode" ;; esac
        ;;
    esac
  done
}
ls -l /proc/[0-9]*/fd 2>/dev/null | held | while read -r pid inode; do
  fields= chain=
  { read -r fields <"/proc/$pid/stat"; } 2>/dev/null || continue
  set -- ${fields##*) }
  session=$4 up=$2
  while [ "${up:-0}" -gt 1 ] 2>/dev/null; do
    chain="$chain$up,"
    { read -r fields <"/proc/$up/stat"; } 2>/dev/null || break
    set -- ${fields##*) }
    up=$2
  done
  echo "pid $pid $session ${chain:--} $(stat -c %U "/proc/$pid" 2>/dev/null) $(tr '\0\t\n' '   ' <"/proc/$pid/cmdline" 2>/dev/null | head -c 200)"
done
if [ -n "$container" ]; then
  first=$(timeout -k 1 10 "$engine" inspect -f '{{.State.Pid}}' "$container" 2>/dev/null) && echo "container $first"
  if within=$(timeout -k 1 10 "$engine" exec "$container" sh -c 'ls -l /proc/[0-9]*/fd' 2>/dev/null) || [ -n "$within" ]; then
    echo looked
    printf '%s\n' "$within" | held | while read -r pid inode; do echo "inside $inode"; done
  fi
fi
exit 0
