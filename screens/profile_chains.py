"""Chains of small kernels and the gaps between them, as rows that lead to their events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from screens.data import Row
from screens.widgets.table import Column
from screens.widgets.text import NONE, Span, clean
from screens.widgets.timeline_lanes import length

CAUSES: Final = {
    "sync": "host synchronising",
    "call": "host in another call",
    "host_code": "host outside calls",
    "launch_call": "inside the launch call",
    "queued": "launched, not begun",
    "unknown": "launch not captured",
}
"""What the host did in a gap, in few words."""

_GAPS_FIRST: Final = 10
_BAR: Final = 12


def chain_rows(rank: Row, start_ns: int) -> list[Row]:
    """The largest gaps of a rank, then its longest chains: where on the common axis, how long, what was inside.

    start_ns: where the rank's first event lies on the common axis.
    """
    shift = start_ns - rank["start_ns"]
    rows: list[Row] = [
        {
            "kind": "gap",
            "at_ns": gap["start_ns"] + shift,
            "wall_ns": gap["length_ns"],
            "kernels": None,
            "idle": 1.0,
            "inside": CAUSES.get(gap["cause"], gap["cause"])
            + (f": {gap['call_inside']['name']}" if gap["call_inside"] else ""),
            "name": gap["next"] or "",
            "told": "before ",
        }
        for gap in rank["host"]["largest_gaps"][:_GAPS_FIRST]
    ]
    rows += [
        {
            "kind": "chain",
            "at_ns": chain["start_ns"] + shift,
            "wall_ns": chain["wall_ns"],
            "kernels": chain["kernels"],
            "idle": chain["idle_ns"] / chain["wall_ns"] if chain["wall_ns"] else 0.0,
            "inside": f"{chain['launches']} launch{'es'[: 2 * (chain['launches'] != 1)]}",
            "name": chain["first"],
            "told": "from ",
        }
        for chain in rank["chains"]["longest_chains"]
    ]
    return [row | {"id": (row["kind"], row["at_ns"], i)} for i, row in enumerate(rows)]


CHAINS: Final = (
    Column("what", 5, lambda r: (r["kind"], "warn" if r["kind"] == "gap" else "accent")),
    Column("at ms", 12, lambda r: (f"{r['at_ns'] / 1e6:.4f}", "dim"), ">", keep=5),
    Column("length", 9, lambda r: (length(r["wall_ns"]), "strong"), ">"),
    Column("kernels", 7, lambda r: (NONE if r["kernels"] is None else str(r["kernels"]), ""), ">", keep=8),
    Column("idle %", 6, lambda r: (f"{100 * r['idle']:.1f}", ""), ">", keep=7),
    Column("inside it", 30, lambda r: (clean(r["inside"], 60), ""), keep=6),
    Column("", 0, lambda r: (r["told"] + clean(r["name"], 300), "dim"), keep=3),
)


def small_rows(rank: Row) -> list[Row]:
    """How a rank is made of small pieces: per step and token, kernel and gap lengths in classes, calls inside gaps.

    `events` is what leads to the events of a row: arguments of ProfileScreen.list_events, None where there are none.
    """
    chains = rank["chains"]
    rows = [row for kind, found in rank["kinds"].items() for row in _kind_rows(rank, kind, found)]
    rows += [
        _row("kernels under 10 us", str(chains["under_10us"]), chains["under_10us_share"], {"length_ns": (0, 10_000)}),
        _row("  of the kernel time", "", chains["under_10us_time_share"]),
        _row("chains (5 or more in a row)", str(chains["chains"])),
    ]
    for title, key, argument in (("kernels", "kernel_lengths", "length_ns"), ("gaps", "device_gaps", "after_gap_ns")):
        total = sum(row["count"] for row in chains[key])
        floors = [0, *(row["below_ns"] for row in chains[key][:-1])]
        rows += [
            _row(f"{title} {_bounds(bounds)}", str(row["count"]), row["count"] / total, {argument: bounds})
            for floor, row in zip(floors, chains[key], strict=True)
            if row["count"] and (bounds := (floor, row["below_ns"]))
        ]
    idle = rank["idle_ns"]
    rows += [
        _row(
            f"in gaps: {clean(call['name'], 40)}",
            length(call["covered_ns"]),
            call["covered_ns"] / idle if idle else None,
            {"gap_call": call["name"]},
        )
        for call in rank["host"]["gap_calls"][:8]
    ]
    return [row | {"id": row["what"]} for row in rows]


def _row(what: str, value: str, share: float | None = None, events: dict[str, Any] | None = None) -> Row:
    return {"what": what, "value": value, "share": share, "events": events}


def _bounds(bounds: tuple[int, int | None]) -> str:
    """A class of lengths: `under 500 ns`, `2 to 5 us`, `1 ms and more`."""
    least, below = bounds
    unit, size = next((u, n) for u, n in (("ms", 10**6), ("us", 1000), ("ns", 1)) if n <= (below or least))
    if below is None:
        return f"{least / size:g} {unit} and more"
    return f"{least / size:g} to {below / size:g} {unit}" if least else f"under {below / size:g} {unit}"


def _kind_rows(rank: Row, kind: str, found: dict[str, Any]) -> list[Row]:
    first = next((step for step in rank["steps"] if step["kind"] == kind), None)
    # Of many steps the first one shows what they are made of.
    events = None if first is None else {"window_ns": (first["start_ns"], first["start_ns"] + first["wall_ns"])}
    return [
        _row(f"{kind}: {what} a {per}", f"{value:g}", None, events)
        for what in ("kernels", "launches")
        for per in ("step", "token")
        if (value := found[f"{what}_per_{per}"]) is not None
    ]


def _bar(row: Row) -> Span:
    share = row["share"]
    return ("" if share is None else "▪" * round(_BAR * min(share, 1.0)), "accent")


def _share(row: Row) -> Span:
    return ("" if row["share"] is None else f"{100 * row['share']:.1f}"), ""


SMALL: Final = (
    Column("", 0, lambda r: (r["what"], "")),
    Column("", 10, lambda r: (r["value"], "strong"), ">"),
    Column("%", 5, _share, ">", keep=8),
    Column("", _BAR, _bar, keep=4),
)

Listing = Callable[..., None]


def list_small(show: Listing, row: Row, at: int, shift_ns: int) -> None:
    """Ask for the events behind a row of `small_rows`; steps are given in the capture's own time."""
    events = dict(row["events"] or {})
    if not events:
        return
    if "window_ns" in events:
        begin, end = events["window_ns"]
        events["window_ns"] = (begin + shift_ns, end + shift_ns)
    show(row["what"], rank=at, **events)
