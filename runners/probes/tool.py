"""What the probes of vendor tools share: a tool that is absent, fails or hangs costs its figures and is told of.

Each call has a time limit: a tool that hangs is killed, told of, and called again. Frames, beside the probe's own:

    unavailable   the tool is not there; the probe ends
    failed        `#rc N` and what the tool said; printed when it is new and once a minute while it lasts
"""

from __future__ import annotations

from typing import Final

from runners.formats import text
from runners.probes.base import Frame, ProbeContext, event, sh_argv
from store.records import Record

LIMIT_S: Final = 10

# `call CMD...` sets out and rc. `told KIND` prints what came as a frame, or tells of the failure and waits a while.
_SH_TOOL: Final = r"""
limit=10 last= n=0
call() { stamp; out=$(timeout -k 2 $limit "$@" 2>&1 </dev/null); rc=$?; }
need() {
  for tool in "$@"; do command -v "$tool" >/dev/null 2>&1 && return; done
  frame unavailable; printf '%s is not in PATH\n#end\n' "$*"; exit 0
}
failed() {
  if [ "$rc $out" != "$last" ] || [ $(( n % 12 )) -eq 0 ]; then
    printf '#frame failed %s %s\n#rc %s\n%s\n#end\n' "$t" "$m" "$rc" "$out"
  fi
  last="$rc $out"; n=$(( n + 1 ))
}
told() {
  if [ "$rc" -eq 0 ]; then printf '#frame %s %s %s\n%s\n#end\n' "$1" "$t" "$m" "$out"; last= n=0
  else failed; sleep 4; fi
}
"""


def tool_argv(script: str, name: str, interval_s: float, *args: str) -> list[str]:
    """argv of a probe that calls a vendor tool: `script` may use call, need, failed and told."""
    return sh_argv(_SH_TOOL + script, name, interval_s, *args)


def trouble(frame: Frame, context: ProbeContext, tool: str) -> list[Record] | None:
    """The events of an `unavailable` or `failed` frame; None for any other."""
    body = frame.text()
    if frame.kind == "unavailable":
        return [event(frame, context, "source_unavailable", "info", f"{tool}: {text.shown(body.strip(), 300)}")]
    if frame.kind != "failed":
        return None
    status, said = answer(body)
    if status in (124, 137):
        said_so = f"{tool} did not answer in {LIMIT_S} s and was killed; it is called again"
        return [event(frame, context, "source_hung", "warn", said_so)]
    detail = text.shown("; ".join(filter(None, map(text.clean, said)))) or "no output"
    return [event(frame, context, "source_failed", "warn", f"{tool} exit {status}: {detail}")]


def answer(body: str) -> tuple[int | None, list[str]]:
    """Exit status and lines of a `failed` frame."""
    lines = body.splitlines()
    status = text.integer(lines.pop(0)[4:]) if lines and lines[0].startswith("#rc ") else None
    return status, lines


def reasons(missing: dict[str, str]) -> str | None:
    """`column: the tool's words` of what it could not give, for the column `missing`; None when it gave all."""
    return "; ".join(f"{column}: {text.shown(word, 60)}" for column, word in sorted(missing.items()))[:600] or None
