"""What a watch adds to its run's document: nodes, GPUs, rails, servers and events over its whole time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from store.export.reader import Reader
from store.queries import call

PARTS = ("hosts", "gpus", "rails", "engine", "events")


def watch_part(reader: Reader, run: Mapping[str, Any]) -> dict[str, Any]:
    """Keys for the document of a watch: the rows of summary_hosts, _gpus, _rails, _engine and _events, and `seconds`
    from its start to its end, or to its last sample so far (null without one)."""
    rows = {part: reader.query(call(f"summary_{part}", run["run_id"])).dicts() for part in PARTS}
    last = run["ended_wall_ns"] or max((h["last_wall_ns"] for h in rows["hosts"]), default=None)
    return {"seconds": None if last is None else (last - run["created_wall_ns"]) / 1e9, **rows}
