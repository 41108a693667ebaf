"""Text for panels: harmless, of a fixed width, in roles instead of colours; and numbers that line up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

Span = tuple[str, str]  # text and its role; '' is plain
SPARKS = "▁▂▃▄▅▆▇"  # never the full block: rows of curves stay apart
NONE = "–"  # a value that is not known; never shown as zero


class Line(NamedTuple):
    """One line of a panel: spans left to right; `base` is a role under the whole line (`sel` for the chosen row)."""

    spans: tuple[Span, ...]
    base: str = ""

    @property
    def text(self) -> str:
        return "".join(t for t, _ in self.spans)


BLANK = Line(())


def line(*parts: Span | str, base: str = "") -> Line:
    """A line from plain strings and (text, role) pairs."""
    return Line(tuple((p, "") if isinstance(p, str) else p for p in parts if p), base)


def clean(text: object, limit: int = 4000) -> str:
    """Text from a node or a file, safe for a terminal: no control, format or surrogate characters, bounded."""
    s = str(text)[:limit]
    if s.isprintable():
        return s
    return "".join(c if c.isprintable() else (" " if c in "\t\n\r" else "·") for c in s)


def fit(text: str, width: int, align: str = "<") -> str:
    """`text` in exactly `width` cells; what does not fit ends in an ellipsis."""
    if width <= 0:
        return ""
    cells = len(text) if text.isascii() else cell_len(text)
    if cells == width:
        return text
    if cells > width:
        return set_cell_size(text, width - 1) + "…"
    pad = " " * (width - cells)
    return pad + text if align == ">" else text + pad


def width_of(spans: Iterable[Span]) -> int:
    return sum(len(t) if t.isascii() else cell_len(t) for t, _ in spans)


def crop(spans: Iterable[Span], width: int) -> tuple[Span, ...]:
    """As much of `spans` as fits in `width` cells; a span that is cut ends in an ellipsis."""
    kept: list[Span] = []
    for text, role in spans:
        cells = len(text) if text.isascii() else cell_len(text)
        if cells > width:
            if width > 0:
                kept.append((fit(text, width), role))
            break
        kept.append((text, role))
        width -= cells
    return tuple(kept)


def wrap(lines: Iterable[Line], width: int) -> tuple[Line, ...]:
    """Lines of at most `width` cells; what does not fit goes on below, indented."""
    out: list[Line] = []
    for entry in lines:
        if width_of(entry.spans) <= width:
            out.append(entry)
            continue
        now: list[Span] = []
        used, indent = 0, 0
        for text, role in entry.spans:
            start = 0
            for i, char in enumerate(text):
                cells = cell_len(char)
                if used + cells > width and used > indent:
                    out.append(Line((*now, (text[start:i], role)), entry.base))
                    now, start = [("  ", "")], i
                    used = indent = 2
                used += cells
            now.append((text[start:], role))
        out.append(Line(tuple(now), entry.base))
    return tuple(out)


def num(value: float | None, digits: int = 0, width: int = 0) -> str:
    """A number with fixed digits, right-aligned; a dash when it is not known."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NONE.rjust(width)
    return f"{value:.{digits}f}".rjust(width)


def short(value: float | None, width: int = 0) -> str:
    """A count in at most five characters: 143, 9.4k, 146k, 2.1M."""
    if value is None or not math.isfinite(value):
        return NONE.rjust(width)
    for scale, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            v = value / scale
            return f"{v:.{0 if abs(v) >= 99.95 else 1}f}{unit}".rjust(width)
    return f"{value:.0f}".rjust(width)


def milli(value: float | None, width: int = 0) -> str:
    """Milliseconds with as many digits as matter: 4.82, 41.2, 812, 13040."""
    if value is None or not math.isfinite(value):
        return NONE.rjust(width)
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:.{digits}f}".rjust(width)


def span_s(seconds: float | None) -> str:
    """A duration: 0.4 s, 42 s, 03:12, 1:04:10, 2 d 04 h."""
    if seconds is None:
        return NONE
    if seconds < 0:
        return "-" + span_s(-seconds)
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    s = int(seconds)
    if s < 3600:
        return f"{s // 60:02d}:{s % 60:02d}"
    if s < 86400:
        return f"{s // 3600}:{s // 60 % 60:02d}:{s % 60:02d}"
    return f"{s // 86400} d {s // 3600 % 24:02d} h"


def ago(seconds: float | None) -> str:
    """How long ago, in one unit: 5 s, 12 min, 3 h, 4 d."""
    if seconds is None:
        return NONE
    for scale, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= scale:
            return f"{seconds / scale:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def stamp(wall_ns: int | None, form: str = "%H:%M:%S") -> str:
    """A wall time in UTC."""
    return NONE if wall_ns is None else datetime.fromtimestamp(wall_ns / 1e9, tz=UTC).strftime(form)


def spark(values: Sequence[float | None], width: int, top: float | None = None) -> str:
    """The last `width` values as bars one cell high; a gap where a value is missing. `top` fixes the scale."""
    if width <= 0:
        return ""
    last = list(values[-width:])
    known = [v for v in last if v is not None]
    high = top if top is not None else max(known, default=0.0)
    if high <= 0:
        bars = "".join(" " if v is None else SPARKS[0] for v in last)
    else:
        bars = "".join(" " if v is None else SPARKS[min(6, max(0, int(v / high * 6.999)))] for v in last)
    return bars.rjust(width)


def bar(share: float | None, width: int) -> str:
    """A gauge of `width` cells filled to `share` (0..1)."""
    if share is None:
        return "·" * width
    full = round(min(max(share, 0.0), 1.0) * width)
    return "▪" * full + "·" * (width - full)
