"""What a watch adds to its run's document: nodes, GPUs, rails, servers and events over its whole time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from store.export.reader import Reader
from store.queries import call

PARTS = ("hosts", "gpus", "rails", "engine", "events")


def watch_part(reader: Reader, run: Mapping[str, Any]) -> dict[str, Any]:
    """Keys for the document of a watch: the rows of summary_hosts, _gpus, _rails, _engine and _events, and `seconds`
    from its start to its end (null while it is on)."""
    ended = run["ended_wall_ns"]
    return {
        "seconds": None if ended is None else (ended - run["created_wall_ns"]) / 1e9,
        **{part: reader.query(call(f"summary_{part}", run["run_id"])).dicts() for part in PARTS},
    }
