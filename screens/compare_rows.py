"""Cells and words of a comparison's document (store/analysis/ab/comparison.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from screens.widgets.table import Column
from screens.widgets.text import NONE, Line, Span, clean, line

ROLES = {
    "improve": "ok",
    "no_change": "",
    "regress": "bad",
    "not_enough_data": "warn",
    "confounded": "bad",
    "refused": "bad",
}
SIGNS = {"improve": "▲", "no_change": "=", "regress": "▼", "not_enough_data": "?", "confounded": "✗", "refused": "✗"}
KINDS = {"undeclared": "bad", "intended": "accent", "derived": "", "noise": "dim"}
STRIP = 21
MAX_REASONS = 8


def mark_column(pair: Mapping[str, str]) -> Column:
    """Which run is which side; reads the screen's choice as it is now."""

    def cell(row: Mapping[str, Any]) -> Span:
        sides = [k.upper() for k, run_id in pair.items() if run_id == row["run_id"]]
        return "/".join(sides), "accent"

    return Column("", 3, cell)


def worded_verdict(verdict: str) -> Span:
    """Sign and word: never colour alone."""
    return f"{SIGNS.get(verdict, '?')} {verdict.replace('_', ' ')}", ROLES.get(verdict, "")


def figure(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def signed(value: float | None) -> str:
    return NONE if value is None else f"{value:+.1f}"


def strip(row: Mapping[str, Any]) -> Span:
    """The interval on a line around 0, ends at ± the larger of 5 % and what the interval needs, up to 50 %."""
    low, mid, high = row["low_pct"], row["effect_pct"], row["high_pct"]
    if low is None or mid is None or high is None:
        return "", "dim"
    reach = float(min(max(5.0, abs(low), abs(high)), 50.0))
    cells = ["·" if i == STRIP // 2 else " " for i in range(STRIP)]

    def at(value: float) -> int:
        return round((min(max(value, -reach), reach) + reach) / (2 * reach) * (STRIP - 1))

    for i in range(at(low), at(high) + 1):
        cells[i] = "┼" if i == STRIP // 2 else "─"
    cells[at(mid)] = "●"
    return "".join(cells), ROLES.get(row["verdict"], "")


METRIC_COLUMNS = (
    Column("metric", 16, lambda r: (("* " if r["primary"] else "  ") + r["name"], "strong" if r["primary"] else "")),
    Column("case", 12, lambda r: (clean(r["case"] or "all", 40), "dim"), keep=2),
    Column("A", 9, lambda r: (figure(r["a"]), ""), align=">"),
    Column("B", 9, lambda r: (figure(r["b"]), ""), align=">"),
    Column("effect %", 8, lambda r: (signed(r["effect_pct"]), "strong"), align=">"),
    Column("from", 7, lambda r: (signed(r["low_pct"]), ""), align=">", keep=7),
    Column("to", 7, lambda r: (signed(r["high_pct"]), ""), align=">", keep=7),
    Column("interval around 0", STRIP, strip, keep=3),
    Column("verdict", 0, lambda r: worded_verdict(r["verdict"]), keep=8),
)
CHANGE_COLUMNS = (
    Column("differs", 11, lambda r: (r["kind"], KINDS.get(r["kind"], ""))),
    Column("name", 34, lambda r: (clean(r["name"], 80), ""), keep=8),
    Column("A", 0, lambda r: (NONE if r["a"] is None else clean(r["a"], 200), "")),
    Column("B", 0, lambda r: (NONE if r["b"] is None else clean(r["b"], 200), "")),
)


def verdict_lines(document: Mapping[str, Any]) -> list[Line]:
    """The verdict in a sentence, the other reasons, and both sides."""
    sign, role = worded_verdict(document["verdict"])
    lines = [line((sign.upper(), role))]
    lines += [
        line((clean(reason, 500), "strong" if n == 0 else ""))
        for n, reason in enumerate(document["reasons"][:MAX_REASONS])
    ]
    for key in "ab":
        side = document["sides"][key]
        failed = f", {len(side['failures'])} failed" if side["failures"] else ""
        said = f"{side['attempts']} attempts on {side['lives']} server lives{failed}"
        lines.append(
            line(
                (f"{key.upper()}  ", "dim"), (clean(side["label"], 60), ""), (f"  {said}", "warn" if failed else "dim")
            )
        )
        lines += [
            line(
                ("     ", ""), (f"{clean(f['case_name'], 40)}: {f['outcome']}: {clean(f['detail'] or '', 200)}", "bad")
            )
            for f in side["failures"][:2]
        ]
    return lines


def metric_lines(row: Mapping[str, Any]) -> list[Line]:
    """One metric in words."""
    needed = "more than anybody would run" if row["needed"] is None else str(row["needed"])
    found = NONE if row["detectable_pct"] is None else f"{row['detectable_pct']:.1f} %"
    return [
        line(worded_verdict(row["verdict"])),
        line(clean(row["why"], 500)),
        line(("A ", "dim"), figure(row["a"]), ("   B ", "dim"), figure(row["b"])),
        line(("level of the interval ", "dim"), f"{row['level']:.2%}", (", replicates ", "dim"), str(row["n"])),
        line(("smallest effect such data find in 80 % of cases ", "dim"), found),
        line(("replicates a side to find the margin ", "dim"), needed),
    ]


def change_lines(row: Mapping[str, Any]) -> list[Line]:
    """One difference, whole."""
    return [
        line((row["kind"], KINDS.get(row["kind"], ""))),
        line(("A  ", "dim"), NONE if row["a"] is None else clean(row["a"], 2000)),
        line(("B  ", "dim"), NONE if row["b"] is None else clean(row["b"], 2000)),
    ]
