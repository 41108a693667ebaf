"""Threads of our servers' processes from /proc: time, state, faults, switches, and their wait for a core (schedstat).

A worker has hundreds of threads and nearly all of them sleep. So every process's main thread is followed, and of the
others those that used more than 1 % of a core when all were last looked at (schedstat, every 20 s); at most 48.
Processes are looked for anew when a rank comes or goes, soon after that, and once a minute.
proc_pid_stat(5), Documentation/scheduler/sched-stats.rst.
"""

from __future__ import annotations

import re
from typing import Final

from runners.formats import proc, text
from runners.formats.base import Skip
from runners.probes.base import Frame, Parsed, ProbeContext, event, parse_frames, sections, sh_argv
from runners.probes.servers import SH_SERVERS, role_of, title_of
from runners.spec import Node
from store.records import Record, ThreadSample

EVERY: Final = 5  # intervals between two samples

_SCRIPT: Final = r"""
known_ids= said= k2=0 looked=0 before= next=0
busy() { # into hot: threads beside the main ones that used more than 1 % of a core since the last look
  hot= many=0; set +f; span=$(( t - looked )); looked=$t
  for p in $pids; do
    for d in /proc/$p/task/[0-9]*; do
      i=${d##*/}; [ "$i" = "$p" ] && continue
      { read -r ran _ <"$d/schedstat"; } 2>/dev/null || continue
      case $ran in ''|*[!0-9]*) continue;; esac
      eval "was=\${c_$i-}; c_$i=$ran"
      [ -n "$was" ] && [ $(( (ran - was) * 100 )) -gt $span ] && [ $many -lt 48 ] || continue
      hot="$hot $d"; many=$(( many + 1 ))
    done
  done
  set -f
}
while :; do
  stamp; roots
  if [ $k2 -ge $next ] || [ "$roots" != "$before" ]; then
    [ "$roots" = "$before" ] && known=$pids || known=new
    before=$roots; servers; busy
    next=$(( k2 + 12 )); [ "$pids" = "$known" ] || next=$(( k2 + 3 ))
  elif [ $(( k2 % 4 )) -eq 1 ]; then busy; fi
  k2=$(( k2 + 1 ))
  if [ -n "$pids" ]; then
    files= ends= said=
    main=; for p in $pids; do main="$main /proc/$p/task/$p"; done
    for d in $main $hot; do files="$files $d/stat $d/schedstat"; ends="$ends $d/status"; done
    frame threads; printf '%s' "$titles"
    head -v -n 1 $files 2>/dev/null; tail -v -n 4 $ends 2>/dev/null; printf '\n#end\n'
  elif [ -z "$said" ]; then
    frame idle; printf 'no process of a server\n#end\n'; said=1
  fi
  pause
done
"""

_PATH = re.compile(r"/proc/(\d{1,9})/task/(\d{1,9})/(stat|schedstat|status)\Z")
_SWITCHES: Final = {
    "voluntary_ctxt_switches": "voluntary_switches_total",
    "nonvoluntary_ctxt_switches": "involuntary_switches_total",
}


class ThreadsProbe:
    name = "threads"
    needs_server = False

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return sh_argv(SH_SERVERS + _SCRIPT, self.name, interval_s * EVERY)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    if frame.kind == "idle":
        return [event(frame, context, "no_server_process", "info", frame.text().strip()[:100])], 0
    if frame.kind != "threads":
        return [], 1
    body = frame.text()
    titles = dict(found for line in body.splitlines() if (found := title_of(line)))
    threads: dict[tuple[int, int], dict[str, list[str]]] = {}
    for path, lines in sections(body).items():
        if match := _PATH.match(path):
            threads.setdefault((int(match[1]), int(match[2])), {})[match[3]] = lines
    records: list[Record] = []
    bad = 0
    for (pid, tid), files in threads.items():
        for item in proc.parse_pid_stat(files.get("stat", [])[:1]):
            if isinstance(item, Skip):
                bad += 1
            elif isinstance(item, dict):
                title = titles.get(pid, "")
                ran = [text.integer(word) for word in " ".join(files.get("schedstat", [])[:1]).split()]
                records.append(
                    ThreadSample(
                        run_id=context.run_id,
                        node=context.node,
                        wall_ns=frame.wall_ns,
                        mono_ns=frame.mono_ns,
                        source="proc",
                        pid=pid,
                        tid=tid,
                        name=text.shown(item["comm"], 64),
                        state=item["state"],
                        user_ticks=item["user_jiffies"],
                        system_ticks=item["system_jiffies"],
                        minor_faults_total=item["minor_faults_total"],
                        major_faults_total=item["major_faults_total"],
                        last_cpu=item["last_cpu"],
                        process=text.shown(text.clean(title), 100) or None,
                        role=role_of(title),
                        run_ns_total=ran[0] if len(ran) == 3 else None,
                        wait_ns_total=ran[1] if len(ran) == 3 else None,
                        **_switches(files.get("status", ())),
                    )
                )
    return records, bad


def _switches(lines: list[str] | tuple[()]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name in _SWITCHES:
            found[_SWITCHES[name]] = text.integer(value)
    return found
