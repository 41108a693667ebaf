"""What a probe is, and the frames it prints.

A probe runs on a node as a detached job: a POSIX sh loop over /proc, /sys and a vendor tool (or a small Python script
for HTTP), whose standard output is a stream of frames:

    #frame <kind> <wall_ns> <mono_ns|->
    ...raw text of the files or of the tool...
    #end

Parsing happens on our side and is stateless: `parse` takes bytes from any committed offset, consumes whole frames
only, and leaves a cut one for the next call. The caller commits offset + consumed together with the records, so any
way of cutting the stream gives the same rows. A frame that cannot be read costs that frame and is counted.

Both times of the sh probes are good to 10 ms: mono_ns comes from /proc/uptime, which is CLOCK_BOOTTIME and equals
CLOCK_MONOTONIC on a machine that never sleeps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from runners.spec import Node
from store.records import LogEvent, Record

MAX_FRAME: Final = 4 << 20  # bytes of one frame; a longer one is skipped
MAX_LINE: Final = 64 << 10  # bytes of one line outside a frame

# What probes say of themselves, beside the event names of runners.formats.events.
EVENTS: Final = {
    "source_unavailable": "the tool, file or server that a probe reads is not there: its figures are missing",
    "source_failed": "the tool ended with an error; told when it is new and once a minute",
    "source_hung": "the tool did not answer and was killed",
    "probe_field_missing": "the driver does not know these fields: they stay NULL",
    "no_server_process": "no process of a server is on the node yet: its threads have no figures",
    "profiling_paused": "DCGM gives no profiling counter: a profiler holds them, or the GPU has none",
}

_HEAD = re.compile(rb"#frame ([a-z][a-z0-9_]{0,31}) (\d{1,19}) (\d{1,19}|-)\r?\Z")
_MAX_NS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """What a parser cannot see in the bytes.

    offset   position in the stream of the first byte handed over
    wall_ns  the owner's clock when the bytes arrived, for lines that carry no time of their own
    engine   sglang | vllm | sim | external, None when the job has no server
    utc_offset_s  the node's zone, for log lines that state local time; None: the half hour that puts a line closest
                  before its arrival, which is right for lines read within half an hour
    """

    run_id: str | None
    node: str
    job_id: str
    life_id: str | None = None
    attempt_id: str | None = None
    rank: int | None = None
    engine: str | None = None
    stream: str = "stdout"
    offset: int = 0
    wall_ns: int = 0
    utc_offset_s: int | None = None


@dataclass(slots=True)
class Parsed:
    """Bytes used up, the rows they became, and how many frames or lines could not be read."""

    consumed: int = 0
    records: list[Record] = field(default_factory=list)
    skipped: int = 0


class Reader(Protocol):
    """Turns the bytes of one kind of stream into rows."""

    name: str

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        """Rows of the whole frames (or lines) in `data`. `final`: no more bytes will come."""


class Probe(Reader, Protocol):
    """A reader with the command that makes its stream. `needs_server`: it asks one server, and lives with it.

    A probe of one maker's tools has a `vendor` (see wanted_on), and runs on nodes with devices of that maker.
    """

    needs_server: bool

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        """The command to start as a detached job on `node`.

        interval_s  distance of the samples, kept without drift
        url         the server, as seen from the node; only for probes that ask one
        """


def wanted_on(probe: Probe, node: Node) -> bool:
    """Whether this probe has something to ask on this node."""
    return getattr(probe, "vendor", node.devices.vendor) == node.devices.vendor


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `offset` is the position of its header in the stream."""

    kind: str
    wall_ns: int
    mono_ns: int | None
    body: bytes
    offset: int

    def text(self) -> str:
        """The body; bytes that are no UTF-8 become U+FFFD."""
        return self.body.decode("utf-8", "replace")


class FrameError(ValueError):
    """The frame's body is not what its kind promises."""


@dataclass(slots=True)
class _Cursor:
    at: int = 0
    skipped: int = 0


def _frames(data: bytes, base: int, final: bool, cursor: _Cursor) -> Iterator[Frame]:
    """Whole frames of `data`. Every decision depends on the bytes from the current position only, never on where the
    caller happened to cut, so that all cuts give the same frames."""
    while cursor.at < len(data):
        start = cursor.at
        newline = data.find(b"\n", start, start + MAX_LINE)
        if newline < 0:
            if len(data) - start >= MAX_LINE:  # an endless line
                cursor.at += MAX_LINE
                cursor.skipped += 1
                continue
            if final:
                cursor.at = len(data)
                cursor.skipped += 1
            return
        line = data[start:newline]
        head = _HEAD.match(line)
        if head is None:
            cursor.at = newline + 1
            cursor.skipped += bool(line.strip())
            continue
        window = data[newline : start + MAX_FRAME]
        end = window.find(b"\n#end\n")
        restart = window.find(b"\n#frame ", 0, end + 1 if end >= 0 else len(window))
        if restart >= 0:  # the probe died within this frame and another took its place
            cursor.at = newline + restart + 1
            cursor.skipped += 1
        elif end >= 0:
            cursor.at = newline + end + len(b"\n#end\n")
            wall = int(head[2])
            mono = None if head[3] == b"-" else int(head[3])
            if wall > _MAX_NS or (mono or 0) > _MAX_NS:
                cursor.skipped += 1
                continue
            yield Frame(head[1].decode(), wall, mono, data[newline + 1 : newline + end + 1], base + start)
        elif len(data) - start >= MAX_FRAME:  # too long: its lines fall to the branch above
            cursor.at = newline + 1
            cursor.skipped += 1
        elif final:
            cursor.at = len(data)
            cursor.skipped += 1
        else:
            return


def parse_frames(
    data: bytes,
    context: ProbeContext,
    final: bool,
    rows: Callable[[Frame, ProbeContext], tuple[list[Record], int]],
) -> Parsed:
    """Run `rows` (records, unreadable lines) over the whole frames. A FrameError from it costs that frame."""
    cursor = _Cursor()
    out = Parsed()
    for frame in _frames(data, context.offset, final, cursor):
        try:
            records, bad = rows(frame, context)
        except FrameError:
            out.skipped += 1
            continue
        out.records += records
        out.skipped += bad
    out.consumed = cursor.at
    out.skipped += cursor.skipped
    return out


def sections(text: str) -> dict[str, list[str]]:
    """`head -v` output -> path -> lines. Text before the first `==> path <==` is dropped."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("==> ") and line.endswith(" <=="):
            lines = found.setdefault(line[4:-4], [])
        else:
            lines.append(line)
    return found


def event(
    frame: Frame, context: ProbeContext, name: str, severity: str = "warn", detail: str | None = None
) -> LogEvent:
    """An event that a frame tells of, at the frame's place and time."""
    return LogEvent(
        run_id=context.run_id,
        job_id=context.job_id,
        node=context.node,
        rank=context.rank,
        stream=context.stream,
        offset=frame.offset,
        wall_ns=frame.wall_ns,
        name=name,
        severity=severity,
        detail=detail,
    )


# The head of every sh probe. Sets I (interval, ns); `stamp` sets t (wall, ns) and m (since boot, ns); `pause` sleeps to
# the next multiple of I of the wall clock, so that samples of all nodes fall together and never drift. A fork costs a
# millisecond of a slow core, so the wall clock is read every 16th time and carried on by /proc/uptime in between: a
# clock that is set shows in t up to 16 ticks late, in m never. 11 ms are added to a pause since /proc/uptime has steps
# of 10: a tick comes up to 20 ms late, never early.
SH_LOOP: Final = r"""
export LC_ALL=C
I=$1 k=0; shift
uptime_ns() { read -r m _ </proc/uptime; m=${m%.*}${m#*.}0000000; }
stamp() {
  uptime_ns; [ $k -gt 0 ] && { k=$(( k - 1 )) t=$(( t0 + m - m0 )); return; }
  t=$(date +%s%N); case $t in *N) t=${t%N}000000000;; esac; t0=$t m0=$m k=15
}
frame() { stamp; printf '#frame %s %s %s\n' "$1" "$t" "$m"; }
pause() {
  uptime_ns; w=$(( t0 + m - m0 )); d=$(( I - w % I ))
  d=$(( d / 1000000 + 11 )); f=$(( d % 1000 )); s=$(( d / 1000 ))
  if [ $f -lt 10 ]; then f=00$f; elif [ $f -lt 100 ]; then f=0$f; fi
  sleep $s.$f
}
"""


def sh_argv(script: str, name: str, interval_s: float, *args: str) -> list[str]:
    """argv of a probe written in sh: SH_LOOP, then `script` with `args` as $1...; at least 100 ms apart."""
    nanoseconds = max(100, round(interval_s * 1000)) * 1_000_000
    return ["sh", "-c", SH_LOOP + script, f"twinrail-{name}", str(nanoseconds), *args]
