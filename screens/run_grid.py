"""The grid of a run: a row a case, a cell a repeat, and whether the repeats agree."""

from __future__ import annotations

from collections.abc import Sequence

from screens.data import Row
from screens.widgets.lamps import lamp
from screens.widgets.table import Column
from screens.widgets.text import Span, clean, num

CELLS = 8  # repeats shown; a case that is repeated more often shows its newest ones


def grid_rows(cases: Sequence[Row], attempts: Sequence[Row]) -> list[Row]:
    """Rows of `live_grid`, each with `cells`: its attempts (with `tps`) by repeat, the newest of those done again."""
    out = []
    for c in cases:
        mine: dict[int, Row] = {}
        for a in attempts:
            if a["case_name"] == c["case_name"] and (a["state"] != "void" or a["repeat"] not in mine):
                mine[a["repeat"]] = a
        out.append({**c, "cells": [mine[r] for r in sorted(mine)][-CELLS:]})
    return out


def columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    """As many repeats as the longest case has. The last repeats go first where room is short."""
    most = max((len(r["cells"]) for r in rows), default=1)

    def cell(n: int) -> Column:
        def said(r: Row) -> Span:
            if n >= len(r["cells"]):
                return "", ""
            a = r["cells"][n]
            sign, role = lamp(a["outcome"] or a["state"])
            return f"{sign} {num(a['tps'], 1)}" if a["tps"] is not None else sign, role

        return Column(f"repeat {n + 1}", 9, said, keep=7 - min(n, 5))

    return (
        Column("case", 13, lambda r: (clean(r["case_name"], 60), "strong")),
        Column("done", 5, lambda r: (f"{r['done']}/{r['asked']}", "dim"), ">", keep=7),
        Column("tok/s", 9, lambda r: (num(r["mean_tps"], 1), "strong"), ">", keep=9),
        Column("CV %", 6, lambda r: (num(r["spread_pct"], 1), "warn" if r["unstable"] else ""), ">", keep=9),
        Column("agree", 10, _agree, keep=8),
        *(cell(n) for n in range(most)),
        Column("why", 0, _why, keep=1),
    )


def _agree(r: Row) -> Span:
    if r["unstable"] is None:
        return ("one alone" if r["counted"] == 1 else ""), "dim"
    return ("▲ unstable", "warn") if r["unstable"] else ("● yes", "ok")


def _why(r: Row) -> Span:
    if not r["unstable"]:
        return "", ""
    return clean("; ".join(r["why"] or ()) or "nothing measured explains it", 300), "warn"
