"""The stages of a start as lines of text: for `up`, while it goes on, and for `show`, afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


class Progress:
    """Says each stage of each node once, when it is through, and what a standing start waits for."""

    def __init__(self) -> None:
        self._said: set[object] = set()

    def lines(self, life: Row | None, stages: Sequence[Row]) -> list[str]:
        """What is new since the last call. `stages`: rows of startup_stages of this life."""
        if life is None:
            return []
        out = []
        for row in stages:
            key = (life["life_id"], row["stage"], row["node"])
            if row["end_s"] is not None and row["state"] == "done" and row["node"] and key not in self._said:
                self._said.add(key)
                usual = "" if row["typical_s"] is None else f" (usually {row['typical_s']:.1f} s)"
                out.append(f"{row['node']}: {row['stage']} done at {row['end_s']:.1f} s{usual}")
        stands = (life["life_id"], life["detail"])
        if life["state"] == "starting" and life["detail"] and stands not in self._said:
            self._said.add(stands)
            out.append(life["detail"])
        return out


def start_line(life: Row, stages: Sequence[Row]) -> str:
    """One line about a finished start: how long it took, and when its stages were through on the slowest node."""
    took = "" if life["ready_s"] is None else f"ready after {life['ready_s']:.1f} s"
    ready = next((r for r in stages if r["stage"] == "ready"), None)
    if ready is not None and ready["typical_s"] is not None and took:
        took += f" (usually {ready['typical_s']:.1f} s)"
    through: dict[str, float] = {}
    for row in stages:
        if row["node"] and row["end_s"] is not None:
            through[row["stage"]] = max(through.get(row["stage"], 0.0), row["end_s"])
    said = ", ".join(f"{stage} {end:.1f} s" for stage, end in through.items())
    failed = "" if life["ready_s"] is not None else f"never ready ({life['outcome'] or life['state']})"
    return f"server life {life['life_id']}: {took or failed}" + (f"; {said}" if said else "")
