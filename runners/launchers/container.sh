# A container as a job: started detached, followed, waited for, stopped by its id. POSIX sh and coreutils.
#   sh -c THIS container ENGINE LOGS NAME START STOP_S COMMAND...   in the job's folder
# LOGS: `follow` by `ENGINE logs -f`, or `direct` when the container writes into the job's files itself.
# COMMAND is the whole `ENGINE run -d ...`; START is in the container's label twinrail.start and in no other's.
# Beside the job's own files: container.id; container.env until it has started; undo until it is gone, which job.sh
# runs when this shell could not end the container itself.
# Lines of ours on stderr begin with "twinrail: "; "twinrail: oom-kill:" says that the engine reports OOMKilled.
engine=$1 mode=$2 name=$3 start=$4 stop_s=$5
shift 5
stopping= stopped=
exec 5>&2 2>/dev/null # what this shell says of its children ("Terminated") is nobody's output
trap 'stopping=1' TERM INT HUP

say() { printf 'twinrail: %s\n' "$*" >&5; }
size() { stat -L -c %s -- "$1"; }
await() { # until child $1 has ended, its exit code in $code, or a signal came
  while [ -z "$stopping" ]; do
    wait "$1"
    code=$?
    kill -0 "$1" 2>/dev/null || return 0
  done
}
remove() { timeout -k 2 30 sh ./undo >&5 2>&5 && rm -f undo; }
state() { # of the container: true (runs), false, gone, or unknown when the engine does not answer
  said=$(timeout -k 2 20 "$engine" inspect --format '{{.State.Running}}' "$cid" 2>&1)
  case $said in
    true | false) echo "$said" ;;
    *[Nn]'o such '* | *'no container with'*) echo gone ;;
    *) echo unknown ;;
  esac
}
# coreutils' head takes not a byte more than it is asked for, and cat writes what it reads at once
follow() { # its output into the job's files; a client of ours may be killed, then from the byte on that is not there yet
  trap '' TERM INT HUP
  while :; do
    was=$(state) out=$(($(size stdout) - out0)) err=$(($(size stderr) - err0))
    [ "$was" = unknown ] && sleep 1 && continue
    if ! same; then
      say "$engine logs does not give again what it gave before: what came later is not here"
      return
    fi
    {
      { (exec "$engine" logs -f "$cid" 2>&1 >&3 3>&-) && : >followed; } |
        { head -c "$err" >/dev/null && exec cat >&5; } 3>&-
    } 3>&1 | { head -c "$out" >/dev/null && exec cat; }
    case $was in false | gone) return ;; esac
    [ ! -e followed ] || case $(state) in false | gone) return ;; esac
    rm -f followed
    sleep 0.5
  done
}
same() { # do its logs begin with what the job's files hold? They would not if the engine has thrown parts away
  [ $((out + err)) = 0 ] && return
  there=$("$engine" logs "$cid" 2>/dev/null | head -c "$out" | sha256sum)
  here=$(tail -c +$((out0 + 1)) stdout | head -c "$out" | sha256sum)
  [ "$there" = "$here" ] || return 1
  there=$("$engine" logs "$cid" 2>&1 >/dev/null | head -c "$err" | sha256sum)
  here=$(tail -c +$((err0 + 1)) stderr | head -c "$err" | sha256sum)
  [ "$there" = "$here" ]
}
said_by_kernel() { # its log names the memory cgroup, whose path ends in the container's id
  timeout -k 2 10 dmesg 2>/dev/null | tail -n 3000 | while IFS= read -r line; do
    case $line in
      *oom-kill:*"$cid"*)
        say "oom-kill: the kernel ended a process of container $name for want of memory (dmesg)"
        break ;;
    esac
  done
}
stop() {
  trap '' TERM INT HUP
  stopped=1
  timeout -k 2 $((stop_s + 10)) "$engine" stop -t "$stop_s" "$cid" >/dev/null 2>&1 ||
    timeout -k 2 10 "$engine" kill "$cid" >/dev/null 2>&1
}

(umask 077 && printf '%s' "$TWINRAIL_CONTAINER_ENV" >container.env) || exit 73
unset TWINRAIL_CONTAINER_ENV
echo "engine=$engine start=$start" >undo || exit 73
cat >>undo <<'END' || exit 73
tries=3
while :; do
  id=
  { read -r id <container.id; } 2>/dev/null
  [ -n "$id" ] || id=$("$engine" ps -aq --no-trunc --filter "label=twinrail.start=$start") || exit 1
  [ -n "$id" ] || exit 0
  said=$("$engine" rm -f "$id" 2>&1) && exit 0
  case $said in *[Nn]'o such container'* | *'no container with'*) exit 0 ;; esac
  tries=$((tries - 1))
  [ $tries -gt 0 ] || { echo "container $id is not removed: $said"; exit 1; }
  sleep 1
done
END

if [ "$mode" = direct ]; then
  "$@" </dev/null 2>&5 5>&- &
else
  "$@" </dev/null >/dev/null 2>&5 5>&- &
fi
await $!
rm -f container.env
if [ -n "$stopping" ] || [ "$code" != 0 ]; then
  case $(tail -c 4000 stderr) in
    *'already in use'*)
      say "a container called $name is there and is not this job's. Look: $engine logs $name; remove: $engine rm -f $name" ;;
    *rlimit* | *memlock*)
      say "$engine may not lift limits without root, and RDMA needs memlock: set become = \"sudo -n\" for this node" ;;
    *'could not select device driver'*)
      say "$engine cannot give GPUs to a container: install the NVIDIA container toolkit, then restart $engine" ;;
  esac
  [ -z "$stopping" ] || code=143
  remove
  exit "$code"
fi
read -r cid <container.id
[ -n "$cid" ] || { say "$engine wrote no container id"; remove; exit 125; }
say "container $name is $cid"
logs=
if [ "$mode" = follow ]; then
  out0=$(size stdout) err0=$(size stderr)
  follow &
  logs=$!
fi
while :; do
  "$engine" wait "$cid" >/dev/null 2>&1 &
  await $!
  [ -z "$stopping" ] || stop
  ended=$(state)
  case $ended in false | gone) break ;; esac
  [ -z "$stopped" ] || break
  sleep 1 & # the daemon was restarted, or a client of ours killed: the container goes on, and so do we
  await $!
done
tries=50
while [ -n "$logs" ] && kill -0 "$logs" 2>/dev/null && [ $tries -gt 0 ]; do
  sleep 0.2
  tries=$((tries - 1))
done
code=$("$engine" inspect --format '{{.State.ExitCode}}' "$cid" 2>/dev/null)
case $code in
  '' | *[!0-9]*)
    code=137
    say "container $name ($cid) is gone or $engine does not answer: no exit code" ;;
esac
case $("$engine" inspect --format '{{.State.OOMKilled}}' "$cid" 2>/dev/null) in
  true) say "oom-kill: the kernel ended a process of container $name for want of memory ($engine inspect: OOMKilled)" ;;
  false) ;;
  *) [ "$code" != 137 ] || [ -n "$stopped" ] || said_by_kernel ;; # nerdctl does not know OOMKilled
esac
rm -f followed
remove
exit "$code"
