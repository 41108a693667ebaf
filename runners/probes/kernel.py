"""The kernel's log: NVIDIA Xid, lost GPUs, the OOM killer, RDMA links. Followed by `dmesg -w`, else by journalctl.

Many systems keep the kernel's log from plain users (kernel.dmesg_restrict): then the probe says so and ends. Lines
carry seconds since boot, so events keep their own time; what happened before the probe started is left out. Only lines
that could mean something leave the node.
"""

from __future__ import annotations

import re
from typing import Final

from runners.formats import kernel_log, text
from runners.formats.base import Event
from runners.probes.base import Frame, Parsed, ProbeContext, event, parse_frames, sh_argv
from runners.spec import Node
from store.records import Record

# An old dmesg tells all that it holds first: lines from before the start are passed over. A report of a lost GPU may be
# spread over lines, the first of which names it: that one is held until the rest comes.
_SCRIPT: Final = r"""
stamp; start=$(( m / 1000000000 ))
follow() {
  held=
  while IFS= read -r line; do
    case $line in
      *NVRM*|*'fallen off'*|*'not responding'*|*'ut of memory'*|*oom-kill*|*segfault*) ;;
      *mlx5_*|*peermem*|*AER:*|*'PCIe Bus Error'*|*'blocked for more'*) ;;
      *) continue;;
    esac
    at=${line#*[}; at=${at#"${at%%[! ]*}"}; at=${at%%[!0-9]*}
    [ -z "$at" ] || [ "$at" -ge "$start" ] || continue
    case $line in
      *'NVRM: The NVIDIA GPU'*) held=$line; continue;;
      *'fallen off'*|*'not responding'*) [ -z "$held" ] || line="$held
$line"; held=;;
    esac
    frame kernel; printf '%s\n#end\n' "$line"
  done
}
if command -v dmesg >/dev/null 2>&1 && dmesg >/dev/null 2>&1; then
  case $(dmesg --help 2>&1) in *follow-new*) new=-W;; *) new=-w;; esac
  dmesg $new 2>/dev/null | follow
elif [ -n "$(journalctl -k -n 1 -q 2>/dev/null)" ]; then
  journalctl -k -f -n 0 -q -o short-monotonic 2>/dev/null | follow
fi
frame unavailable; dmesg 2>&1 >/dev/null | head -n 1; printf '\n#end\n'
"""
_SINCE_BOOT = re.compile(r"\[ *(\d{1,9})\.(\d{6})")
_SEVERE: Final = frozenset({"gpu_lost", "oom_kill"})


class KernelProbe:
    name = "kernel"
    needs_server = False

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return sh_argv(_SCRIPT, self.name, interval_s)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    body = frame.text()
    if frame.kind == "unavailable":
        said = text.shown(body.strip(), 200) or "no dmesg and no journalctl"
        return [event(frame, context, "source_unavailable", "info", f"kernel log: {said}")], 0
    if frame.kind != "kernel":
        return [], 1
    records: list[Record] = []
    for item in kernel_log.parse(body.splitlines()):
        if isinstance(item, Event):
            at = Frame(frame.kind, _when(body, frame), frame.mono_ns, frame.body, frame.offset)
            fatal = item.name in _SEVERE or (item.name == "xid" and item.detail.get("reason") is not None)
            note = item.detail.get("role") == "note"
            detail = text.shown(str(item.detail.get("line", "")))
            if item.detail.get("meaning"):
                detail = f"{detail} ({item.detail['meaning']})"
            records.append(event(at, context, item.name, "fatal" if fatal else "info" if note else "warn", detail))
    return records, 0


def _when(body: str, frame: Frame) -> int:
    """The line's own instant: seconds since boot on it, against those of the frame."""
    match = _SINCE_BOOT.search(body)
    if match is None or frame.mono_ns is None:
        return frame.wall_ns
    since = int(match[1]) * 10**9 + int(match[2]) * 1000
    return frame.wall_ns - max(frame.mono_ns - since, 0)
