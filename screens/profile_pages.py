"""The pages of the profile screen between the bars and the timeline: what they are, and what fills them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen

from runners.profiles import Profile
from screens.profile_chains import CHAINS, SMALL, chain_rows, small_rows
from screens.profile_diff import DIFF, diff_rows
from screens.profile_rows import (
    COLLECTIVES,
    COLUMN_WORDS,
    COLUMNS,
    KERNELS,
    METRIC_WORDS,
    METRICS,
    SORTS,
    STRAGGLERS,
    collective_rows,
    family_columns,
    family_rows,
    kernel_rows,
    question_lines,
    rank_name,
)
from screens.widgets.bars import TextPanel
from screens.widgets.table import Table
from screens.widgets.text import clean, line

PAGES: Final = {
    "families": "#families",
    "names": "#kernels",
    "comm": "#comm",
    "chains": "#chained",
    "answers": "#questions",
    "details": "#text",
    "diff": "#diff",
}
KEYS: Final = "fnciadx"
"""The key of each page, in their order."""

SIDE_BY_SIDE: Final = 110
_ASIDE: Final = {"#stragglers": 46, "#small": 56}
"""Columns of the second table of a page where two lie beside each other."""


@dataclass
class Choice:
    """What the operator wants to see. first: the first column shown of the families."""

    page: str = "families"
    sort: str = SORTS[0]
    metric: str = METRICS[0]
    columns: str = COLUMNS[0]
    first: int = 0

    def next(self, what: str, of: tuple[str, ...]) -> None:
        """The value after the one at hand."""
        setattr(self, what, of[(of.index(getattr(self, what)) + 1) % len(of)])


def pages() -> ComposeResult:
    """The widgets."""
    yield Table("families", (), key="name", ident="families", empty="nothing was measured")
    yield Table("kernels", KERNELS, key="id", ident="kernels", empty="no kernel was measured")
    with Horizontal(id="comm"):
        yield Table("collectives", COLLECTIVES, key="id", ident="collectives", empty="no communication was found")
        yield Table(
            "who arrives last",
            STRAGGLERS,
            key="id",
            ident="stragglers",
            empty="needs two ranks or more whose collectives match",
        )
    with Horizontal(id="chained"):
        yield Table(
            "gaps and chains", CHAINS, key="id", ident="chains", empty="no gap, and no five small kernels in a row"
        )
        yield Table("small pieces", SMALL, key="id", ident="small", empty="nothing was measured", header=False)
    yield TextPanel("the ten questions", ident="questions")
    yield TextPanel("report", ident="text")
    yield Table(
        "what changed from the first file to the second, mean per rank",
        DIFF,
        key="id",
        ident="diff",
        empty="open just two files to see what changed from the first to the second",
    )


def arrange(screen: Screen[Any], width: int, height: int) -> None:
    """The two tables of a page beside each other where there is room, else one below the other."""
    wide = width >= SIDE_BY_SIDE
    for page, main, aside in (("#comm", "#collectives", "#stragglers"), ("#chained", "#chains", "#small")):
        screen.query_one(page).styles.layout = "horizontal" if wide else "vertical"
        first, second = screen.query_one(main), screen.query_one(aside)
        second.styles.width = _ASIDE[aside] if wide else "1fr"
        first.styles.height = height if wide else max(height * 3 // 5, 2)
        second.styles.height = height if wide else max(height - height * 3 // 5, 2)


def fill(screen: Screen[Any], profile: Profile, choice: Choice, rank: int) -> None:
    """Put a profile on the pages; steps are those of the rank at that position."""
    report = profile.report
    found = profile.tables[choice.columns]
    columns: list[dict[str, Any]] = found[rank] if choice.columns == "steps" else found
    choice.first = min(choice.first, max(len(columns) - 1, 0))
    families = screen.query_one("#families", Table)
    families.columns = family_columns(columns, choice.first, choice.metric)
    of = COLUMN_WORDS[choice.columns] + (f", from {choice.first + 1} of {len(columns)}" if choice.first else "")
    families.title = f"families, {METRIC_WORDS[choice.metric]} (m)   by {of} (v)"
    families.show(family_rows(columns, profile.families, choice.metric))
    kernels = screen.query_one("#kernels", Table)
    kernels.title = f"kernels by {choice.sort.removesuffix('_ns')} (s)   enter lists the events"
    kernels.show(kernel_rows(report, choice.sort))
    screen.query_one("#diff", Table).show(diff_rows(profile.diff))
    screen.query_one("#collectives", Table).show(collective_rows(report))
    screen.query_one("#stragglers", Table).show([row | {"id": i} for i, row in enumerate(report["stragglers"])])
    ranks = report["ranks"]
    chains = screen.query_one("#chains", Table)
    chains.title = f"gaps and chains, {rank_name(ranks[rank], ranks)}" if ranks else "gaps and chains"
    chains.show(chain_rows(ranks[rank], profile.starts_ns[rank]) if ranks else [])
    screen.query_one("#small", Table).show(small_rows(ranks[rank]) if ranks else [])
    screen.query_one("#questions", TextPanel).show(question_lines(report, screen.size.width))
    screen.query_one("#text", TextPanel).show(tuple(line(clean(t, 400)) for t in profile.text.splitlines()))
