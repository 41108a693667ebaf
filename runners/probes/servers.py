"""The processes of our servers on a node, found by plain sh: what the probes of threads, NUMA and GPU memory look at.

A rank's job folder lies beside the probe's own and names the process that leads its session; what descends from it or
runs in its session is the server's. A rank in a container has its id there, and the container engine knows the process.
Without a rank of ours (an external server) processes are known by the titles that the engines give themselves.
"""

from __future__ import annotations

import re
from typing import Final

# `servers` sets pids, and titles: a line `#process PID TITLE` for each. `kernel` processes are children of 2.
SH_SERVERS: Final = r"""
roots() {
  set +f; roots=
  for pid in "${TWINRAIL_JOB_DIR:-/nonexistent}"/../*.r[0-9]*/pid; do
    dir=${pid%/pid}; case ${dir##*.r} in *[!0-9]*) continue;; esac
    [ -r "$pid" ] && [ ! -e "$dir/rc" ] && read -r p _ <"$pid" && roots="$roots $p"
    [ -s "$dir/container.id" ] || continue
    read -r cid _ <"$dir/container.id"
    case " $known_ids" in *" $cid="*) p=${known_ids##*" $cid="}; p=${p%% *}; roots="$roots $p"; continue;; esac
    for engine in docker podman nerdctl; do
      p=$(timeout -k 1 5 $engine inspect -f '{{.State.Pid}}' "$cid" 2>/dev/null) || continue
      case $p in ''|0|*[!0-9]*) ;; *) known_ids="$known_ids $cid=$p"; roots="$roots $p"; break;; esac
    done
  done
}
servers() {
  roots; set +f
  table=$(head -q -n 1 /proc/[0-9]*/stat 2>/dev/null); set -f
  found=" " rest= named=
  IFS='
'
  for l in $table; do
    p=${l%% *}; case $p in ''|*[!0-9]*) continue;; esac
    name=${l#*\(}; name=${name%\)*}; l=${l##*) }
    l=${l#* }; parent=${l%% *}; l=${l#* }; l=${l#* }; session=${l%% *}
    case $parent in ''|0|2|*[!0-9]*) continue;; esac
    case $name in sglang*|SGLang*|VLLM::*|vllm*) named="$named$p:$parent ";; esac
    case "$roots " in *" $p "*|*" $session "*) found="$found$p ";; *) rest="$rest$p:$parent ";; esac
  done
  unset IFS
  if [ -z "$roots" ]; then
    found=" "; for e in $named; do found="$found${e%:*} "; done
  else
    grew=1
    while [ -n "$grew" ]; do
      grew= left=
      for e in $rest; do
        case $found in *" ${e#*:} "*) found="$found${e%:*} " grew=1;; *) left="$left$e ";; esac
      done
      rest=$left
    done
  fi
  pids= titles= many=0
  for p in $found; do
    title=; { IFS= read -r title <"/proc/$p/cmdline"; } 2>/dev/null
    case $title in '') { IFS= read -r title <"/proc/$p/comm"; } 2>/dev/null;; esac
    case $title in ''|sh./jobjob_*|sleep[0-9]*) continue;; esac # a job's own shells
    many=$(( many + 1 )); [ $many -gt 96 ] && break
    end=${title#????????????????????????????????????????????????????????????????????????????????????????????????????}
    [ "$end" = "$title" ] || title=${title%"$end"}
    pids="$pids $p"; titles="$titles#process $p $title
"
  done
}
"""

_LINE = re.compile(r"#process (\d{1,9}) (.*)")
_PROGRAM = re.compile(r"\S*/")
_ROLES: Final = (
    ("detokenizer", re.compile(r"detoken")),
    ("tokenizer", re.compile(r"tokeni[sz]er")),
    ("scheduler", re.compile(r"sglang::sched|scheduler")),
    ("engine core", re.compile(r"EngineCore|data_parallel|DataParallel")),
    ("worker", re.compile(r"[Ww]orker|ModelRunner|spawn_main|RayW")),
    ("router", re.compile(r"router|gateway|load_balanc")),
    (
        "front end",
        re.compile(
            r"A[Pp][Ii]Server|api_server|launch_server|(?:vllm|sglang) ?serve|sglang::http|/sim-[0-9a-f]|sim\.py"
        ),
    ),
)


def title_of(line: str) -> tuple[int, str] | None:
    """(pid, title) of a `#process` line. Of a command line whose words ran together only what names it is kept."""
    match = _LINE.match(line)
    if match is None:
        return None
    return int(match[1]), " ".join(match[2].split())


def role_of(title: str) -> str:
    """What a process of an engine does, by its title: SGLang and vLLM name their processes."""
    return next((role for role, pattern in _ROLES if pattern.search(title)), "other")
