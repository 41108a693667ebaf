# Detached jobs on a node: sent with every request, and kept in each job's folder as `job`.
# POSIX sh, coreutils and setsid only; no awk, sed, grep, find or ps, and as few forks as can be.
#
# A job's folder: cmd, job, pid, start (field 22 of /proc/PID/stat), boot_id, started (wall ns), expires (epoch s),
# keeper (pid), files (names of its streams), stdout, stderr, and at the end rc and ended (wall ns), by rename.
# A long stream loses its head once that is committed; STREAM.rolled says how many bytes. The rest keeps its place.
# A job that makes something outside its session (a container) keeps a script `undo` there for as long as it exists.
set -f

stat_fields() { # into $fields what follows the name in /proc/$1/stat: state ppid pgrp session ... (start ticks: 20th)
  fields=
  { read -r fields <"/proc/$1/stat"; } 2>/dev/null || return 1
  fields=${fields##*) } # the name may hold blanks and brackets
}
one() { # into $value the first word of file $1; empty without it
  value=
  { read -r value <"$1"; } 2>/dev/null
  value=${value%% *}
}
alive() { # is process $1 with start ticks $2 there, and not a zombie?
  stat_fields "$1" || return 1
  set -- "$2" $fields
  [ "$2" != Z ] && [ "$2" != X ] && [ "${21}" = "$1" ]
}
members() { # into $pids everything in session $1 and whatever descends from it, but for the keeper
  session=$1 table= pids= known=" $1 " grew=1
  set +f
  for dir in /proc/[0-9]*; do
    p=${dir#/proc/}
    stat_fields "$p" || continue
    set -f
    set -- $fields
    set +f
    case $1 in Z | X) continue ;; esac
    [ "$4" = 0 ] || [ "$p" = "$keeper" ] && continue # session 0: kernel threads
    if [ "$4" = "$session" ]; then
      known="$known$p " pids="$pids $p"
    else
      table="$table$p:$2 "
    fi
  done
  set -f
  while [ -n "$grew" ]; do
    grew= rest=
    for entry in $table; do
      case $known in
        *" ${entry#*:} "*) known="$known${entry%:*} " pids="$pids ${entry%:*}" grew=1 ;;
        *) rest="$rest$entry " ;;
      esac
    done
    table=$rest
  done
}
end_members() { # SIGTERM to session $1, after $2 seconds SIGKILL; false if something survives even that
  members "$1"
  [ -z "$pids" ] && return 0
  kill -TERM $pids 2>/dev/null
  tries=$(($2 * 5))
  while members "$1" && [ -n "$pids" ] && [ $tries -gt 0 ]; do
    sleep 0.2
    tries=$((tries - 1))
  done
  [ -z "$pids" ] && return 0
  [ -e rc ] || echo 137 >killed # said beforehand: nobody may see a job of ours as vanished
  tries=25
  while [ -n "$pids" ] && [ $tries -gt 0 ]; do
    kill -KILL $pids 2>/dev/null
    sleep 0.2
    tries=$((tries - 1))
    members "$1"
  done
  [ -z "$pids" ]
}
finish() { # exit code $1; the blocks were reserved at the start, so this works on a full disk
  printf '%-30s\n' "$(date +%s%N)" 1<>ended.tmp && mv -f ended.tmp ended
  printf '%-8s\n' "$1" 1<>rc.tmp && mv -f rc.tmp rc
}
undo() { # end what the job left outside its session; false if that did not work
  [ ! -e undo ] || { timeout -k 2 15 sh ./undo </dev/null >undo.log 2>&1 && rm -f undo undo.log; }
}
settle() { # the exit code of a job whose own shell we had to kill
  [ -e rc ] || [ ! -e killed ] || finish 137
}

job_run() { # FOLDER TTL_S: leads the session. Working directory: the staging folder. stdin, stdout, stderr: the job's
  folder=$1 ttl=$2
  umask 077
  stat_fields $$ || exit 71
  set -- $fields
  ticks=${20}
  one /proc/sys/kernel/random/boot_id
  {
    echo $$ >pid && echo "$ticks" >start && echo "$value" >boot_id && date +%s%N >started &&
      echo $(($(date +%s) + ttl)) >expires && printf '%8s\n' '' >rc.tmp && printf '%30s\n' '' >ended.tmp
  } || {
    head -c 4096 /dev/zero >probe # names the reason, which the shell's own echo does not
    exit 73
  }
  # The claim: of two starts of one job a single rename wins, the other finds a folder that is not empty.
  mv -T -- "$PWD" "$folder" 2>/dev/null || exit 17
  cd -- "$folder" || exit 73
  # The keeper has a session of its own: a signal to the job's group cannot end it.
  setsid sh ./job job_keep $$ "$ticks" </dev/null >/dev/null 2>&1 &
  keeper=$!
  echo $keeper >keeper
  trap : TERM INT HUP # a signal to the group still ends with an exit code
  exec 3>&2 2>/dev/null # what this shell says ("Terminated") is not the job's
  (
    umask 022
    export TWINRAIL_JOB="${folder##*/}" TWINRAIL_JOB_DIR="$folder"
    if [ -e secrets ]; then . ./secrets && rm -f secrets; fi
    exec sh ./cmd
  ) </dev/null 2>&3 3>&-
  finish $?
  kill -USR1 $keeper 2>/dev/null
  exit 0
}

job_keep() { # SESSION TICKS: holds the job to its time-to-live, then ends whatever is left of its session
  keeper=$$ nap=
  trap : USR1
  read -r up _ </proc/uptime # what the clock said when it was 0: no `date` each time
  zero=$(($(date +%s) - ${up%.*}))
  while [ ! -e rc ] && alive "$1" "$2"; do
    one expires
    read -r up _ </proc/uptime
    left=$((${value:-0} - zero - ${up%.*}))
    [ $left -gt 0 ] || break
    [ $left -gt 5 ] && left=5
    sleep $left &
    nap=$!
    wait $nap
  done
  [ -z "$nap" ] || kill $nap 2>/dev/null
  [ -e rc ] || ! alive "$1" "$2" || echo expired >why
  end_members "$1" 10
  undo
  settle
}

enter() { # ROOT [make]: into its folder of jobs; a relative one starts at the home folder
  case $1 in
    /*) jobs=$1/jobs ;;
    *) jobs=${HOME:?is not set there; give node.root as an absolute path}/$1/jobs ;;
  esac
  if [ -n "${2-}" ]; then (umask 077 && mkdir -p -- "$jobs") || exit 73; fi
  cd -- "$jobs" 2>/dev/null || { [ -z "${2-}" ] && exit 0; exit 73; }
  jobs=$(pwd -P)
  one /proc/sys/kernel/random/boot_id
  this_boot=$value
}
job_state() { # ID -> state rc pid ticks boot
  state=unknown rc=- pid=- ticks=- boot=-
  [ -d "$1" ] || return 0
  one "$1/pid"; pid=${value:--}
  one "$1/start"; ticks=${value:--}
  one "$1/boot_id"; boot=${value:--}
  one "$1/rc"; rc=${value:--}
  if [ "$rc" != - ]; then
    state=exited
  elif [ "$boot" = "$this_boot" ] && alive "$pid" "$ticks"; then
    state=running
  else
    one "$1/rc"; rc=${value:--} # it may have ended between the two looks
    [ "$rc" != - ] || { one "$1/killed"; rc=${value:--}; }
    [ "$rc" != - ] && state=exited || state=gone
  fi
}
job_status() { # ID...: one `job` line each, then the size of every stream
  streams=
  for id in "$@"; do
    job_state "$id"
    one "$id/started"; started=${value:--}
    one "$id/ended"; ended=${value:--}
    one "$id/expires"; expires=${value:--}
    one "$id/why"; why=${value:--}
    echo "job $id $state $rc $pid $ticks $boot $started $ended $expires $why $jobs/$id"
    [ $state = unknown ] && continue
    { read -r value <"$id/files"; } 2>/dev/null
    for name in stdout stderr $value; do streams="$streams $id/$name"; done
  done
  [ -z "$streams" ] || stat -L -c 'size %n %s' -- $streams 2>/dev/null
  echo end
}
job_list() {
  set +f
  set -- *
  set -f
  [ -d "$1" ] || set --
  job_status "$@"
}
job_start() { # ID TTL_S FILES CMD SECRETS
  if [ ! -d "$1" ]; then
    new=.new.$1.$$.$(date +%s%N)
    umask 077
    mkdir -- "$new" && cd -- "$new" && {
      printf '%s' "$job" >job && printf '%s\n' "$3" >files && printf '%s' "$4" >cmd &&
        { [ -z "$5" ] || printf '%s' "$5" >secrets; }
    } || { head -c 4096 /dev/zero >probe; cd ..; rm -rf -- "$new"; exit 73; }
    setsid sh ./job job_run "$jobs/$1" "$2" </dev/null >stdout 2>stderr &
    leader=$!
    cd -- "$jobs" || exit 73
    tries=400
    until [ -e "$1/pid" ] || ! kill -0 $leader 2>/dev/null || [ $tries = 0 ]; do
      sleep 0.025
      tries=$((tries - 1))
    done
    if [ ! -e "$1/pid" ]; then
      cat -- "$new/stderr" >&2
      rm -rf -- "$new"
      exit 73
    fi
    one "$1/pid"
    [ "$value" = $leader ] || wait $leader 2>/dev/null # the loser of a race: it may be writing there yet
    rm -rf -- "$new"
  fi
  job_status "$1"
}
job_stop() { # ID GRACE_S
  job_state "$1"
  if [ "$boot" = "$this_boot" ] && cd -- "$1" 2>/dev/null; then
    [ -e rc ] || [ -e why ] || echo stopped >why
    one keeper
    keeper=${value:--}
    # A process of that number with other start ticks is somebody else's: then our session is over.
    if ! stat_fields "$pid" || alive "$pid" "$ticks"; then
      end_members "$pid" "$2" || { echo "survived SIGKILL:$pids" >&2; exit 75; }
    fi
    undo || { echo "what the job started is not ended:" >&2; cat undo.log >&2; exit 76; }
    settle
    cd -- "$jobs" || exit 73
  fi
  job_status "$1"
}
job_extend() { # TTL_S ID...
  until_s=$(($(date +%s) + $1))
  shift
  for id in "$@"; do
    [ -d "$id" ] || continue
    echo "$until_s" >"$id/expires.$$" && mv -f -- "$id/expires.$$" "$id/expires" || exit 73
  done
  job_status "$@"
}
job_reap() { # ID...: folders of jobs that do not run
  for id in "$@"; do
    job_state "$id"
    [ ! -e "$id/undo" ] || [ $state = running ] || (cd -- "$id" && undo) || { cat "$id/undo.log" >&2; exit 76; }
    [ $state = running ] || [ $state = unknown ] || { mv -T -- "$id" ".old.$id.$$" && rm -rf -- ".old.$id.$$" "../nccl/$id"; } || exit 73
  done
  job_status "$@"
}

keep=${TWINRAIL_KEEP_BYTES:-268435456} part=${TWINRAIL_PART_BYTES:-67108864}
roll() { # JOB/STREAM COMMITTED: give the disk of what is committed back, but for the last $keep bytes, a part at a time
  # A hole is punched, so that offsets go on counting from the job's start. Not every file system can: then nothing goes.
  upto=$((($2 - keep) / part * part))
  [ $upto -gt 0 ] || return 0
  case $rolled in *" $1=$upto "*) return 0 ;; esac
  rolled="$rolled$1=$upto "
  fallocate -p -o 0 -l $upto -- "$1" 2>/dev/null && echo $upto >"$1.rolled"
}

job_tail() { # [PID TICKS of a server that this one replaces]: see runners/nodes/tail.py
  [ $# -lt 2 ] || ! alive "$1" "$2" || kill "$1" 2>/dev/null # it hangs on a connection that is gone
  stat_fields $$
  set -- $fields
  echo "hello $$ ${20}"
  rolled=' '
  while read -r line; do
    set -- $line
    nonce=$1 paths= states=' ' sizes=' '
    shift
    wanted=$*
    while [ $# -ge 4 ]; do # states before sizes: an ended job's size is final
      paths="$paths $1/$2"
      case $states in
        *" $1="*) ;;
        *) job_state "$1"; states="$states$1=$state:$rc:$pid:$ticks:$boot " ;;
      esac
      shift 4
    done
    for entry in $(stat -L -c '%n=%s' -- $paths 2>/dev/null); do sizes="$sizes$entry "; done
    set -- $wanted
    while [ $# -ge 4 ]; do
      state=${states#*" $1="} size=0
      case $sizes in *" $1/$2="*) size=${sizes#*" $1/$2="}; size=${size%% *} ;; esac
      length=$((size - $3))
      [ $length -gt 0 ] || length=0
      [ $length -le "$4" ] || length=$4
      echo "chunk $nonce $1 $2 $3 $length $size ${state%% *}"
      [ $length = 0 ] || { tail -c +$(($3 + 1)) -- "$1/$2" | head -c "$length"; echo; echo "done $nonce"; }
      [ "$3" -le $keep ] || [ "$3" -gt $size ] || roll "$1/$2" "$3"
      shift 4
    done
    echo "end $nonce"
  done
}

case ${1-} in job_run | job_keep) "$@" ;; esac
