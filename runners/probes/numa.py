"""NUMA: counters of each memory node from /sys, and where the pages of our servers' processes lie (numa_maps).

numa_maps holds up the process that it asks about while the kernel walks its pages, so it is read every other minute and
of one process at a time; pages are summed on the node, or a worker's maps would be megabytes. It may be read by root
and by the process's own user (ptrace access): else pages are NULL and `missing` says why. numa(7).
"""

from __future__ import annotations

import re
from typing import Final

from runners.formats import text
from runners.probes.base import Frame, Parsed, ProbeContext, parse_frames, sections, sh_argv
from runners.probes.servers import SH_SERVERS, title_of
from runners.spec import Node
from store.records import NumaSample, Record

EVERY: Final = 30  # intervals between two samples of the nodes; of the processes every fourth time

_SCRIPT: Final = r"""
known_ids= k2=0
sys=${TWINRAIL_SYS_NODE:-/sys/devices/system/node}
pages() { # `#pages PID TITLE`, then `#on NODE BYTES` for each node, or `#not WHY`
  maps=$(timeout -k 1 10 cat "/proc/$1/numa_maps" 2>&1); code=$?
  if [ $code -ne 0 ]; then
    case $code in 124|137) maps='no answer within 10 s';; esac
    printf '#not %s %s\n' "$1" "${maps##*: }"; return
  fi
  nodes=; held=; set -f
  for w in $maps; do
    case $w in
      N[0-9]*=[0-9]*) node=${w%%=*}; node=${node#N}; count=${w#*=}
        case $node$count in *[!0-9]*) continue;; esac
        held="$held $node=$count";;
      kernelpagesize_kB=[0-9]*) kb=${w#*=}; case $kb in *[!0-9]*) continue;; esac
        for h in $held; do
          node=${h%=*}
          case " $nodes " in *" $node "*) ;; *) nodes="$nodes $node"; eval "sum_$node=0";; esac
          eval "sum_$node=\$(( sum_$node + ${h#*=} * kb ))"
        done
        held=;;
    esac
  done
  for node in $nodes; do eval "printf '#on %s %s %s\n' $1 $node \$sum_$node"; done
}
while :; do
  set +f; frame numa
  head -v -n 40 $sys/node[0-9]*/numastat $sys/node[0-9]*/cpulist $sys/node[0-9]*/meminfo 2>/dev/null
  printf '\n'
  if [ $(( k2 % 4 )) -eq 1 ]; then
    servers; printf '%s' "$titles"
    for p in $pids; do
      while read -r key value _; do
        case $key in Cpus_allowed_list:) printf '#cpus %s %s\n' "$p" "$value"; break;; esac
      done 2>/dev/null <"/proc/$p/status"
      pages "$p"
    done
  fi
  k2=$(( k2 + 1 ))
  printf '#end\n'
  pause
done
"""

_NODE = re.compile(r"\S*/node(\d{1,4})/(numastat|cpulist|meminfo)\Z")
_FREE = re.compile(r"Node \d+ MemFree:\s+(\d{1,19}) kB")
_WORDS = re.compile(r"#(on|not|cpus) (\d{1,9}) (.*)")


class NumaProbe:
    name = "numa"
    needs_server = False

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return sh_argv(SH_SERVERS + _SCRIPT, self.name, interval_s * EVERY)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    if frame.kind != "numa":
        return [], 1
    body = frame.text()
    at = (context.run_id, context.node, frame.wall_ns, frame.mono_ns)
    nodes: dict[int, dict[str, list[str]]] = {}
    for path, lines in sections(body).items():
        if match := _NODE.match(path):
            nodes.setdefault(int(match[1]), {})[match[2]] = lines
    return [*(_node(at, number, files) for number, files in nodes.items()), *_processes(at, body)], 0


At = tuple[str | None, str, int, int | None]


def _node(at: At, number: int, files: dict[str, list[str]]) -> NumaSample:
    counts = {words[0]: text.integer(words[1]) for line in files.get("numastat", []) if len(words := line.split()) == 2}
    free = next((m for line in files.get("meminfo", []) if (m := _FREE.match(line))), None)
    return NumaSample(
        run_id=at[0],
        node=at[1],
        wall_ns=at[2],
        mono_ns=at[3],
        source="sysfs",
        numa=number,
        mem_free_bytes=int(free[1]) * 1024 if free else None,
        hit_total=counts.get("numa_hit"),
        miss_total=counts.get("numa_miss"),
        foreign_total=counts.get("numa_foreign"),
        cpus=text.shown("".join(files.get("cpulist", [])[:1]), 200) or None,
    )


def _processes(at: At, body: str) -> list[NumaSample]:
    """One row a process and node that holds pages of it; `numa` is -1 where pages could not be read."""
    titles: dict[int, str] = {}
    cpus: dict[int, str] = {}
    found: list[NumaSample] = []
    for line in body.splitlines():
        if title := title_of(line):
            titles[title[0]] = title[1]
            continue
        match = _WORDS.match(line)
        if match is None:
            continue
        pid, rest = int(match[2]), match[3]
        if match[1] == "cpus":
            cpus[pid] = text.shown(rest, 200)
            continue
        number, _, size = rest.partition(" ")
        known = match[1] == "on" and text.integer(number) is not None and text.integer(size) is not None
        found.append(
            NumaSample(
                run_id=at[0],
                node=at[1],
                wall_ns=at[2],
                mono_ns=at[3],
                source="numa_maps",
                numa=int(number[:6]) if known else -1,
                pid=pid,
                pages_bytes=int(size[:15]) * 1024 if known else None,
                process=text.shown(text.clean(titles.get(pid, "")), 100) or None,
                cpus=cpus.get(pid),
                missing=None if known else f"numa_maps: {text.shown(rest, 200)}",
            )
        )
    return found
