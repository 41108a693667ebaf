"""What the profile screen shows, as rows and lines: plain functions of the report."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any, Final

from screens.data import Row
from screens.widgets.bars import Ends
from screens.widgets.stackbar import Part
from screens.widgets.table import Column
from screens.widgets.text import NONE, Line, Span, clean, line, num, short
from screens.widgets.timeline_lanes import length

Report = dict[str, Any]

LETTERS: Final[dict[str, Span]] = {
    "Communication": ("C", "warn"),
    "GEMM": ("G", "accent"),
    "MLA/Attention": ("A", "three"),
    "MoE": ("E", "two"),
    "NSA/DSA Indexer": ("I", "strong"),
    "Norm/Activation": ("N", "calm"),
    "Quantization": ("Q", "title"),
    "Sampling": ("S", "ok"),
    "Memory/Copy": ("M", "calm"),
    "Other": ("O", "dim"),
}
"""A letter and a colour for each family."""

WAIT, BOTH, COPIES, IDLE = ("w", "warn"), ("B", "ok"), ("m", "calm"), ("·", "dim")
SORTS: Final = ("total_ns", "count", "mean_ns")
METRICS: Final = ("wall_share", "device_share", "ns_per_token")
METRIC_WORDS: Final = {
    "wall_share": "% of wall clock, adds up",
    "device_share": "% of summed device time",
    "ns_per_token": "device time per token",
}
_ENDINGS: Final = re.compile(r"(\.pt)?(\.trace)?(\.json|\.sqlite)?(\.gz)?$")
COLUMN_WORDS: Final = {"files": "file", "kinds": "kind of step", "steps": "step of the chosen rank"}
COLUMNS: Final = tuple(COLUMN_WORDS)


BEHIND: Final[dict[str, dict[str, Any]]] = {
    "wall clock": {},
    "compute and communication": {"family": "Communication"},
    "communication exposed": {"family": "Communication"},
    "copies alone": {"family": "Memory/Copy"},
    "idle": {"after_gap_ns": (0, None)},
}
"""What leads to the events of a part that is no family's: of a gap, to what ends it."""


def letter(family: str) -> Span:
    return LETTERS.get(family, ("?", "dim"))


def rank_name(rank: Row, ranks: list[Row]) -> str:
    """`rank 3`, else the device; with the file where that alone is not clear."""
    name = f"rank {rank['rank']}" if rank["rank"] is not None else f"device {rank['device']}"
    same = [
        r
        for r in ranks
        if (r["rank"], r["rank"] is None and r["device"]) == (rank["rank"], rank["rank"] is None and rank["device"])
    ]
    return name if len(same) == 1 else f"{name} {clean(rank['file'], 40)}"


def parts(rank: Row) -> list[Part]:
    """The parts of a rank's wall clock in the order of its bar; they add up to wall_ns. Exposed communication is
    split into waiting for later ranks and the rest where that is known."""
    families = sorted(rank["compute_ns"].items(), key=lambda item: -item[1])
    exposed, wait = rank["communication_exposed_ns"], rank["communication_wait_ns"] or 0
    return [
        *((*letter(family), clean(family, 30), ns) for family, ns in families),
        (*BOTH, "compute and communication", rank["overlap_ns"]),
        (*letter("Communication"), "communication exposed" + (", moving" if wait else ""), exposed - wait),
        (*WAIT, "waiting for later ranks", wait),
        (*COPIES, "copies alone", rank["copy_exposed_ns"]),
        (*IDLE, "idle", rank["idle_ns"]),
    ]


def bar_rows(report: Report) -> list[Row]:
    """One row a rank, the slowest first; `at` is its position in the report."""
    ranks = report["ranks"]
    rows = []
    for i, rank in sorted(enumerate(ranks), key=lambda item: -item[1]["wall_ns"]):
        wall = rank["wall_ns"] or 1
        figures = (
            sum(rank["compute_ns"].values()),
            rank["overlap_ns"],
            rank["communication_exposed_ns"],
            rank["communication_wait_ns"],
            rank["copy_exposed_ns"],
            rank["idle_ns"],
        )
        rows.append(
            {
                "at": i,
                "title": rank_name(rank, ranks),
                "wall": length(rank["wall_ns"]),
                "parts": parts(rank),
                "shares": tuple(None if ns is None else ns / wall for ns in figures),
            }
        )
    return rows


def part_lines(rank: Row) -> tuple[Line, ...]:
    """Every part of a rank to the nanosecond, down to the sum."""
    wall = rank["wall_ns"] or 1
    lines = [
        line((f" {text} ", role), f"{name:<34}{ns:>20,} ns", (f"{100 * ns / wall:>8.2f} %", "dim"))
        for text, role, name, ns in parts(rank)
        if ns
    ]
    facts = f"{rank['kernels']} kernels and {rank['copies']} copies from {rank['launches']} launches"
    return (
        *lines,
        line(("   adds up to (wall clock)".ljust(37) + f"{rank['wall_ns']:>20,} ns", "strong")),
        line(""),
        line((f"   {facts}; {rank['events_without_launch']} without a launch in the capture", "dim")),
        line((f"   {clean(rank['file'], 200)}, device {rank['device']}, {clean(rank['source'], 20)}", "dim")),
    )


# --- families x files, kinds of step, steps


def family_rows(columns: list[Row], families: list[str], metric: str) -> list[Row]:
    """A row a family, then the parts that are no family's; `of` holds one value a column."""
    rows: list[Row] = []
    for family in families:
        found = [column["families"].get(family) for column in columns]
        if any(found):
            name = "Communication alone" if metric == "wall_share" and family == "Communication" else family
            values = [None if cell is None else cell[metric] for cell in found]
            rows.append({"name": name, "family": family, "sign": letter(family), "of": values})
    if metric == "wall_share":
        for name, key, sign in (
            ("compute and communication", "overlap_share", BOTH),
            ("copies alone", "copy_share", COPIES),
            ("idle", "idle_share", IDLE),
        ):
            rows.append({"name": name, "family": None, "sign": sign, "of": [column[key] for column in columns]})
    return rows


def family_columns(columns: list[Row], first: int, metric: str) -> list[Column]:
    """The table's columns from column `first` on."""

    def cell(i: int) -> Callable[[Row], Span]:
        def of(row: Row) -> Span:
            value = row["of"][i]
            if value is None:
                return "", "dim"
            return (length(value) if metric == "ns_per_token" else f"{100 * value:.2f}"), ""

        return of

    names = [_ENDINGS.sub("", clean(column["scenario"], 200)) for column in columns]
    wide = max(min(max((len(name) for name in names), default=9), 24), 9)
    return [
        Column("", 1, lambda row: row["sign"]),
        Column("family", 25, lambda row: (row["name"], "")),
        *(
            Column(names[i][-wide:], wide, cell(i), ">", keep=8 if i == first else 5)
            for i in range(first, len(columns))
        ),
    ]


# --- kernels


def kernel_rows(report: Report, key: str) -> list[Row]:
    """Kernels and copies by name, most first; share is of the summed device time."""
    rows = [*report["kernels"], *report["copies"]]
    total = sum(row["total_ns"] for row in rows) or 1
    rows = [row | {"share": row["total_ns"] / total, "id": (row["name"], i)} for i, row in enumerate(rows)]
    return sorted(rows, key=lambda row: (-row[key], row["name"]))


KERNELS: Final = (
    Column("", 1, lambda r: letter(r["family"])),
    Column("family", 16, lambda r: (clean(r["family"], 30), "dim"), keep=3),
    Column("count", 8, lambda r: (num(r["count"]), ""), ">", keep=7),
    Column("total", 10, lambda r: (length(r["total_ns"]), "strong"), ">"),
    Column("mean", 10, lambda r: (length(r["mean_ns"]), ""), ">", keep=6),
    Column("%", 5, lambda r: (num(100 * r["share"], 1), "dim"), ">", keep=5),
    Column("name", 0, lambda r: (clean(r["name"], 300), "")),
)


# --- collectives and stragglers


def collective_rows(report: Report) -> list[Row]:
    """Matched over the ranks first, then as each rank saw them."""
    rows: list[Row] = [
        {
            "who": "all",
            "operation": row["operation"],
            "group": row["group"],
            "bytes": row["bytes"],
            "count": row["collectives"],
            "mean": None,
            "exposed": None,
            "wait": row["wait_ns"],
            "moving": row["transfer_ns"],
            "at": None,
        }
        for row in report["collectives"]
    ]
    for i, rank in enumerate(report["ranks"]):
        rows += [
            {
                "who": rank_name(rank, report["ranks"]),
                "operation": row["operation"],
                "group": row["group"],
                "bytes": row["bytes"],
                "count": row["count"],
                "mean": row["mean_ns"],
                "exposed": row["exposed_ns"],
                "wait": None,
                "moving": None,
                "at": i,
            }
            for row in rank["collectives"]
        ]
    return [row | {"id": i} for i, row in enumerate(rows)]


def _ns(key: str) -> Callable[[Row], Span]:
    return lambda row: (NONE if row[key] is None else length(row[key]), "")


COLLECTIVES: Final = (
    Column("who", 7, lambda r: (r["who"], "strong" if r["at"] is None else "dim")),
    Column("operation", 12, lambda r: (clean(r["operation"], 30), "")),
    Column("group", 8, lambda r: (clean(r["group"] or NONE, 30), "dim"), keep=3),
    Column("bytes", 6, lambda r: (short(r["bytes"]), ""), ">", keep=4),
    Column("count", 5, lambda r: (short(r["count"]), ""), ">"),
    Column("mean", 9, _ns("mean"), ">", keep=5),
    Column("exposed", 9, _ns("exposed"), ">", keep=7),
    Column("waiting", 9, _ns("wait"), ">", keep=8),
    Column("moving", 9, _ns("moving"), ">", keep=6),
)

STRAGGLERS: Final = (
    Column("who", 7, lambda r: (f"rank {r['rank']}", "")),
    Column("last", 9, lambda r: (f"{r['last']}/{r['collectives']}", ""), ">"),
    Column("%", 5, lambda r: (num(100 * r["share"], 1), "strong"), ">"),
    Column("late", 9, _ns("median_late_ns"), ">", keep=7),
    Column("", 9, lambda r: ("▲ mostly", "warn") if r["fixed"] else ("at times", "dim"), keep=6),
)


# --- the questions, and what is always on screen


def question_lines(report: Report, width: int) -> tuple[Line, ...]:
    """The ten questions with their answers, or why this capture cannot tell, broken between words."""
    lines: list[Line] = []
    for number, row in enumerate(report["questions"], 1):
        lines.append(line((f"{number:>2}. ", "accent"), (clean(row["question"], 300), "strong")))
        known = row["answer"] is not None
        said = (
            clean(row["answer"], 2000) if known else f"this capture cannot tell, because {clean(row['because'], 600)}"
        )
        lines += [line("    ", (part, "" if known else "dim")) for part in textwrap.wrap(said, max(width - 5, 20))]
    return tuple(lines)


def unmatched(report: Report) -> tuple[int, float]:
    """Time that no family rule knows, and its share of the summed device time."""
    total = sum(row["total_ns"] for row in (*report["kernels"], *report["copies"]))
    ns = sum(row["total_ns"] for row in report["unmatched"])
    return ns, ns / total if total else 0.0


def state_bar(report: Report, wide: bool) -> Ends:
    """Problems and unmatched time: the line that is always there."""
    problems, names = report["problems"], len(report["unmatched"])
    ns, share = unmatched(report)
    said: Span = (f"unmatched {100 * share:.2f} %", "warn" if share > 0.02 else "")
    what = f" {length(ns)}, {names} name{'s'[: names != 1]} " if wide else " "
    left: list[Span] = [(" ", "")]
    if problems:
        left += [(f"▲ {len(problems)} problem{'s'[: len(problems) != 1]} ", "warn"), (clean(problems[0], 300), "")]
    else:
        left += [("no problems", "dim")]
    return Ends(tuple(left), ((" ", ""), said, (what, "dim"), ("p", "accent"), (" reads ", "dim")))


def problem_lines(report: Report) -> tuple[Line, ...]:
    """All problems, then all names without a family."""
    ns, share = unmatched(report)
    return (
        line(("problems", "title")),
        *(line(("▲ ", "warn"), clean(problem, 1000)) for problem in report["problems"] or ()),
        *(() if report["problems"] else (line(("none", "dim")),)),
        line(""),
        line(
            ("kernels that no family rule knows", "title"),
            (f"   {length(ns)}, {100 * share:.2f} % of device time", "dim"),
        ),
        *(
            line((f"{length(row['total_ns']):>10} {row['count']:>7} x  ", "dim"), clean(row["name"], 1000))
            for row in report["unmatched"]
        ),
    )
