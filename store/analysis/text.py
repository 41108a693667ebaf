"""The `analyze` document as text for a terminal: plain lines, nothing from a capture reaches it uncleaned."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NAME_WIDTH: Final = (24, 160)
_KERNEL_COLUMNS: Final = 52
"""What a kernel table needs beside the name: indent, family, count, total and mean."""
_CALL_WIDTH: Final = 36
_INNER: Final = re.compile(
    r"\b(\w+(?:[Ff]unctor(?:_\w+)?|_kernel_cuda|Ops|_kernel_impl)|\w*Functor_\w+)\b|(?<=_)(MT\d+x\d+x\d+)"
)
_CARRIERS: Final = frozenset({"BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "UnaryFunctor", "gpu_kernel_impl"})
_BRACKET: Final = re.compile(r"[<(]")
_QUALIFIER: Final = re.compile(r"^(?:[\w~]+::|\(anonymous namespace\)::|<unnamed>::)+")
CAUSES: Final = {
    "sync": "host inside a synchronising call",
    "call": "host inside another runtime call",
    "host_code": "host outside any call (Python, scheduler)",
    "launch_call": "inside the launch call itself",
    "queued": "launched already, device had not begun",
    "unknown": "launch not in the capture",
}


def clean(text: object, width: int | None = None) -> str:
    """Text without control and direction characters, cut to a width."""
    safe = _UNSAFE.sub("�", str(text))
    return safe if width is None or len(safe) <= width else safe[: width - 1] + "…"


def kernel_name(name: str, width: int) -> str:
    """A kernel's name in so many columns; what says least goes first: return type, then namespaces, then the end
    (or the middle, where no brackets say what the end is)."""
    safe = clean(name)
    if len(safe) > width:
        safe = safe.removeprefix("void ")
    if len(safe) > width:
        safe = _QUALIFIER.sub("", safe)
        inner = next((word for found in _INNER.finditer(safe) if (word := found.group()) not in _CARRIERS), None)
        if inner:  # one wrapper or library, many operations: the operation tells them apart
            own = _BRACKET.split(safe, maxsplit=1)[0]
            return clean(f"{own[: max(8, width - len(inner) - 1)]}…{inner}", width)
    if len(safe) > width and not _BRACKET.search(safe):  # Tensile, CUTLASS, mangled: variants differ at the end
        return f"{safe[: width - width // 3 - 1]}…{safe[-(width // 3) :]}"
    return clean(safe, width)


def duration(ns: float | None) -> str:
    """Nanoseconds for people: three to four figures and a unit; a dash for not known."""
    if ns is None:
        return "–"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:,.2f} {unit}"
    return f"{ns:.0f} ns"


def share(part: float | None, whole: float | None) -> str:
    """A percentage, or a dash where the whole is nothing or a figure is not known."""
    return f"{100 * part / whole:.1f} %" if whole and part is not None else "–"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> list[str]:
    """Rows as aligned lines; the first `left` columns to the left, the others to the right."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not cells:
        return []
    lines = [list(head), *cells]
    widths = [max(len(row[i]) for row in lines) for i in range(len(head))]
    return [
        "  "
        + "  ".join(
            c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in lines
    ]


def render(report: dict[str, Any], top: int = 15, width: int = 100) -> str:
    """The whole report as text of so many columns (80 or more)."""
    width = max(80, width)
    lines: list[str] = [] if report["ranks"] else ["No file could be analysed."]
    for rank in report["ranks"]:
        lines += rank_lines(rank)
    lines += section("Shares of the wall clock, all ranks", _shares(report.get("shares")))
    lines += section(
        "Steps by kind (exposed communication; launches a step; kernels from graphs)", _kinds(report["ranks"])
    )
    lines += section("Small kernels by kind of step", _small(report["ranks"]))
    lines += section("Idle time by cause (first rank)", _causes(report["ranks"][:1]))
    lines += section("Host calls inside device gaps (first rank; nested calls each)", _gap_calls(report["ranks"][:1]))
    lines += section("Runtime calls (first rank)", _calls(report["ranks"][:1]))
    lines += section("Kernel lengths and device gaps (first rank)", _histograms(report["ranks"][:1]))
    lines += section("Communication", _collectives(report))
    lines += section("Arriving last at collectives", _stragglers(report["stragglers"]))
    lines += section("Kernels by device time", kernel_lines(report["kernels"], top, width))
    lines += section("Kernels that no family rule knows", kernel_lines(report["unmatched"], top, width))
    lines += section("The ten timeline questions", _questions(report.get("questions", [])))
    lines += section("Problems", [f"  ! {clean(problem)}" for problem in report["problems"]])
    return "\n".join(fitted(lines, width)).lstrip("\n") + "\n"


def fitted(lines: Iterable[str], width: int) -> Iterable[str]:
    """Lines, those too long broken at blanks under their own indent."""
    for line in lines:
        if len(line) <= width:
            yield line
        else:
            indent = line[: len(line) - len(line.lstrip())]
            yield from textwrap.wrap(line, width, subsequent_indent=indent + "  ", break_on_hyphens=False)


def parts_rows(parts: dict[str, Any]) -> list[tuple[str, int]]:
    """The parts of a window by name, in reading order; they add up to wall_ns."""
    rows = sorted(parts["compute_ns"].items(), key=lambda item: -item[1])
    return [
        *((f"compute: {family}", ns) for family, ns in rows),
        ("compute and communication", parts["overlap_ns"]),
        ("communication exposed", parts["communication_exposed_ns"]),
        ("copy exposed", parts["copy_exposed_ns"]),
        ("idle", parts["idle_ns"]),
    ]


def rank_title(rank: dict[str, Any]) -> str:
    """How a rank is called in text."""
    name = f"rank {rank['rank']}" if rank["rank"] is not None else "rank not known"
    return f"{name} · {clean(rank['file'], 60)} · device {rank['device']}"


def rank_lines(rank: dict[str, Any]) -> list[str]:
    """The breakdown of one rank that adds up, with summed device time beside it."""
    wall, summed = rank["wall_ns"], rank["cumulative_ns"]
    beside = {f"compute: {family}": ns for family, ns in summed.items()}
    beside["communication exposed"] = summed.get("Communication")
    rows = [(name, duration(ns), share(ns, wall), duration(beside.get(name))) for name, ns in parts_rows(rank) if ns]
    rows.append(("adds up to (wall)", duration(wall), share(wall, wall), duration(sum(summed.values()))))
    lines = ["", f"{rank_title(rank)} · {rank['kernels']} kernels from {rank['launches']} launches"]
    lines += table(("wall clock", "time", "share", "summed device time"), rows)
    if rank["communication_wait_ns"] is not None:
        wait = rank["communication_wait_ns"]
        part = share(wait, rank["communication_exposed_ns"])
        lines.append(f"  of the exposed communication, waiting for later ranks: {duration(wait)} ({part})")
    if window := rank.get("window"):
        inside = [(name, duration(ns), share(ns, window["wall_ns"])) for name, ns in parts_rows(window) if ns]
        head = f"window {window['start_ns'] / 1e6:.3f} to {window['end_ns'] / 1e6:.3f} ms"
        lines += table((head, "time", "share"), [*inside, ("adds up to", duration(window["wall_ns"]), "")])
    return lines


def _shares(shares: dict[str, float | None] | None) -> list[str]:
    if not shares or shares["idle"] is None:
        return []
    named = (
        ("communication exposed", "communication_exposed"),
        ("indexer and attention", "indexer_attention"),
        ("MoE", "moe"),
        ("CPU gaps", "cpu_gaps"),
        ("idle in all", "idle"),
    )
    return ["  " + " · ".join(f"{name} {share(shares[key], 1)}" for name, key in named)]


def _kinds(ranks: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            kind,
            "–" if rank["rank"] is None else rank["rank"],
            row["steps"],
            duration(row["step_wall_ns"]["median"]),
            duration(row["wall_ns_per_token"]),
            share(row["communication_exposed_ns"], row["wall_ns"]),
            share(row["idle_ns"], row["wall_ns"]),
            row["launches_per_step"],
            share(row["graph_kernels"], row["kernels"]),
        )
        for rank in ranks
        for kind, row in rank["kinds"].items()
    ]
    return table(
        ("kind", "rank", "steps", "median", "per token", "exposed", "idle", "launches", "graphs"),
        rows,
    )


def _small(ranks: list[dict[str, Any]]) -> list[str]:
    def each(value: float | None) -> str:
        return "–" if value is None else f"{value:g}"

    rows = [
        (
            kind,
            "–" if rank["rank"] is None else rank["rank"],
            each(row["kernels_per_step"]),
            each(row["launches_per_step"]),
            each(row["kernels_per_token"]),
            each(row["launches_per_token"]),
            share(row["under_10us_share"], 1),
            share(row["under_10us_time_share"], 1),
        )
        for rank in ranks
        for kind, row in rank["kinds"].items()
    ]
    heads = ("kernels/step", "launches/step", "/token", "/token", "<10 us", "of time")
    return table(("kind", "rank", *heads), rows)


def _gap_calls(ranks: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            clean(row["name"], _CALL_WIDTH),
            row["gaps"],
            duration(row["covered_ns"]),
            share(row["covered_ns"], rank["idle_ns"]),
        )
        for rank in ranks
        for row in rank["host"]["gap_calls"][:6]
    ]
    return table(("call", "gaps", "covers", "share of idle"), rows)


def causes_rows(rank: dict[str, Any]) -> list[tuple[str, int]]:
    """What the host did while the device was idle, largest first; they add up to idle_ns."""
    causes = rank["host"]["idle_by_cause_ns"]
    return [(CAUSES[cause], ns) for cause, ns in sorted(causes.items(), key=lambda item: -item[1]) if ns]


def _causes(ranks: list[dict[str, Any]]) -> list[str]:
    lines = []
    for rank in ranks:
        rows = [(name, duration(ns), share(ns, rank["idle_ns"])) for name, ns in causes_rows(rank)]
        lines += table(("what the host did", "time", "share of idle"), rows)
        chain = rank["chains"]
        if chain["under_10us_share"] is not None:
            lines.append(
                f"  {share(chain['under_10us_share'], 1)} of the kernels are shorter than 10 us (they hold "
                f"{share(chain['under_10us_time_share'], 1)} of the kernel time); {chain['chains']} chains of five or "
                f"more, the longest {chain['longest_chain']}"
            )
    return lines


def _calls(ranks: list[dict[str, Any]]) -> list[str]:
    lines = []
    for rank in ranks:
        host = rank["host"]
        rows = [
            (
                clean(row["name"], _CALL_WIDTH),
                row["count"],
                duration(row["total_ns"]),
                duration(row["mean_ns"]),
                duration(row["max_ns"]),
            )
            for row in host["calls"][:8]
        ]
        lines += table(("call", "count", "total", "mean", "longest"), rows)
        below = [
            (clean(row["name"], _CALL_WIDTH), row["count"], duration(row["total_ns"])) for row in host["os_calls"][:6]
        ]
        lines += table(("operating system call", "count", "total"), below)
    return lines


def _histograms(ranks: list[dict[str, Any]]) -> list[str]:
    lines = []
    for rank in ranks:
        for title, key in (("kernels that last", "kernel_lengths"), ("gaps that last", "device_gaps")):
            rows = rank["chains"][key]
            total = sum(row["count"] for row in rows)
            cells, floor = [], 0
            for row in rows:
                bounds = f"{duration(floor)} to {duration(row['below_ns'])}" if row["below_ns"] else "longer"
                floor = row["below_ns"]
                if row["count"]:
                    cells.append((bounds, row["count"], share(row["count"], total)))
            lines += table((title, "count", "share"), cells)
    return lines


def _collectives(report: dict[str, Any]) -> list[str]:
    rows = [
        (
            row["operation"],
            clean(row["group"] or "–", 20),
            row["bytes"] if row["bytes"] is not None else "–",
            "–" if rank["rank"] is None else rank["rank"],
            row["count"],
            duration(row["mean_ns"]),
            duration(row["exposed_ns"]),
        )
        for rank in report["ranks"][:2]
        for row in rank["collectives"][:8]
    ]
    lines = table(("operation", "group", "bytes", "rank", "count", "mean", "exposed"), rows, left=2)
    across = [
        (r["operation"], r["collectives"], duration(r["wait_ns"]), duration(r["transfer_ns"]))
        for r in report["collectives"][:8]
    ]
    return lines + table(("over all ranks", "collectives", "waiting", "transfer"), across)


def _stragglers(rows: list[dict[str, Any]]) -> list[str]:
    shown = [
        (
            f"rank {row['rank']}",
            f"{row['last']} of {row['collectives']}",
            share(row["share"], 1),
            duration(row["median_late_ns"]),
            "mostly this one" if row["fixed"] else "now and then",
        )
        for row in rows[:8]
    ]
    return table(("who", "last", "share", "median lateness", "pattern"), shown)


def kernel_lines(rows: list[dict[str, Any]], top: int, width: int = 120) -> list[str]:
    """Kernels by time, the first `top`, and how many more there are."""
    names = min(max(width - _KERNEL_COLUMNS, _NAME_WIDTH[0]), _NAME_WIDTH[1])
    shown = [
        (kernel_name(r["name"], names), r["family"], r["count"], duration(r["total_ns"]), duration(r["mean_ns"]))
        for r in rows[:top]
    ]
    lines = table(("name", "family", "count", "total", "mean"), shown, left=2)
    if len(rows) > top:
        lines.append(f"  and {len(rows) - top} more")
    return lines


def _questions(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for number, row in enumerate(rows, 1):
        lines.append(f"  {number}. {row['question']}")
        said = row["answer"] if row["answer"] is not None else f"this capture cannot tell, because {row['because']}"
        lines.append(f"     {clean(said)}")
    return lines


def section(title: str, lines: list[str]) -> list[str]:
    """A titled block, nothing if it is empty."""
    return ["", title, *lines] if lines else []
