"""Lines and numbers as tools print them: cleaning, bounded reading, units, absent values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from runners.formats.base import Value

MAX_LINE: Final = 64 * 1024  # longer lines are cut here and flagged
MAX_DOCUMENT: Final = 256 * 1024 * 1024  # a JSON or XML document larger than this is not loaded
CUT_MARK: Final = " [cut]"
MATCHED: Final = 4096  # patterns look at so much of a line: what they seek stands at its start

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|\x9b[0-9;?]*[@-~]")
# C0 and C1 controls, and the marks that reorder text on a terminal (bidi overrides and isolates).
_CONTROLS: Final = dict.fromkeys(
    [*range(9), *range(10, 32), *range(127, 160), 0xFEFF, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)


def clean(line: str) -> str:
    """One line as the tool meant it: no colour, no line end, the last state of a rewritten (tqdm) line, no control
    characters, no padding on the right, at most 64 KiB.
    """
    if len(line) > MAX_LINE:
        line = line[:MAX_LINE] + CUT_MARK
    line = line.rstrip()
    if line.isprintable():
        return line
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    if "\x1b" in line or "\x9b" in line:
        line = _ANSI.sub("", line)
    return line.translate(_CONTROLS).rstrip()


def cleaned(lines: Iterable[str]) -> Iterator[str]:
    """`clean` over a stream."""
    return map(clean, lines)


def document(lines: Iterable[str]) -> str | None:
    """The whole text of a document format, or None when it is larger than MAX_DOCUMENT."""
    parts = []
    size = 0
    for line in lines:
        size += len(line)
        if size > MAX_DOCUMENT:
            return None
        parts.append(line if line.endswith("\n") else line + "\n")
    return "".join(parts)


def shown(text: str, limit: int = 400) -> str:
    """Text for an event's detail: bounded."""
    return text if len(text) <= limit else text[:limit] + CUT_MARK


class Memo(dict[str, tuple[str, Value]]):
    """Results of a function of a short text, kept because logs repeat themselves; bounded."""

    def __init__(self, make: Callable[[str], tuple[str, Value]], limit: int = 100_000) -> None:
        super().__init__()
        self._make, self._limit = make, limit

    def __missing__(self, key: str) -> tuple[str, Value]:
        if len(self) >= self._limit:
            self.clear()
        made = self[key] = self._make(key)
        return made


# What tools write for "not available" (nvidia-smi, dcgmi, rocm-smi, sysstat, InfiniBand sysfs).
ABSENT: Final = frozenset(
    {
        "",
        "-",
        "--",
        "N/A",
        "[N/A]",
        "n/a",
        "N/W",
        "NA",
        "None",
        "[Not Supported]",
        "Not Supported",
        "[Unknown Error]",
        "Unknown Error",
        "ERR!",
        "[ERR!]",
        "[Requested functionality has been deprecated]",
        "[GPU requires reset]",
        "[GPU is lost]",
        "[Insufficient Permissions]",
        "N/A (no PMA)",
        "unknown",
        "<unknown>",
    }
)

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
MAX_DIGITS: Final = 400  # int() of a longer text is refused by Python; no counter is that long


def number(text: str) -> int | float | None:
    """An int or a finite float from plain decimal text, else None (also for nan and inf, which no sensor means)."""
    text = text.strip()
    if len(text) > MAX_DIGITS:
        return None
    if text.isdecimal() and text.isascii():
        return int(text)
    if not _NUMBER.match(text):
        return None
    if "." not in text and "e" not in text and "E" not in text:
        return int(text)
    value = float(text)
    return value if value - value == 0 else None


def integer(text: str) -> int | None:
    """A whole number from decimal text, else None."""
    value = number(text)
    return value if isinstance(value, int) else None


def real(text: str) -> float | None:
    """A finite float from decimal text, else None."""
    value = number(text)
    return None if value is None else float(value)


_QUANTITY = re.compile(r"([+-]?\d[\d,]*\.?\d*(?:[eE][+-]?\d+)?)\s*([^\d\s].*)?\Z")

# factor to the base unit, and the suffix of the column that holds it
UNITS: Final[dict[str, tuple[float, str]]] = {
    "%": (1, "pct"),
    "W": (1, "w"),
    "mW": (0.001, "w"),
    "MHz": (1, "mhz"),
    "Mhz": (1, "mhz"),
    "GHz": (1000, "mhz"),
    "C": (1, "c"),
    "°C": (1, "c"),
    "c": (1, "c"),
    "us": (1, "us"),
    "ms": (1, "ms"),
    "s": (1, "s"),
    "B": (1, "bytes"),
    "KB": (1000, "bytes"),
    "KiB": (1024, "bytes"),
    "kB": (1024, "bytes"),
    "MB": (1000**2, "bytes"),
    "MiB": (1024**2, "bytes"),
    "GB": (1000**3, "bytes"),
    "GiB": (1024**3, "bytes"),
    "TiB": (1024**4, "bytes"),
    "mV": (1, "mv"),
    "RPM": (1, "rpm"),
    "J": (1, "j"),
}


def quantity(text: str) -> tuple[int | float, str] | None:
    """`627.40 W` -> (627.4, "W"); `100` -> (100, ""). None when the text is no number with an optional unit."""
    match = _QUANTITY.match(text.strip())
    if match is None:
        return None
    value = number(match[1].replace(",", ""))
    return None if value is None else (value, (match[2] or "").strip())


def scaled(value: float, unit: str) -> int | float:
    """The value in the base unit of UNITS (bytes stay whole numbers)."""
    factor, suffix = UNITS.get(unit, (1, ""))
    result = value * factor
    if suffix == "bytes":
        return round(result)
    return result


def cell(text: str) -> Value:
    """A cell of an unknown column: None when absent, a number, else the text."""
    text = text.strip()
    if text in ABSENT:
        return None
    value = number(text)
    return text if value is None else value


def without_ansi(text: str) -> str:
    """Text without terminal escape sequences."""
    return _ANSI.sub("", text) if "\x1b" in text or "\x9b" in text else text
