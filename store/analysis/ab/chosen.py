"""From what an operator names to the two sides: runs against runs, or the sides of one run of `ab --run`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from store.analysis.ab.comparison import compare
from store.analysis.ab.sides import Side
from store.errors import StoreError
from store.export.reader import Reader
from store.queries import literal


def compare_chosen(reader: Reader, a: Sequence[str], b: Sequence[str], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Document of `ab` with `run_ids`; what is not asked is as the run says. Raises StoreError."""
    known = {r: _run(reader, r) for r in (*a, *b)}
    said: Mapping[str, Any] = {}
    if b:
        sides = [Side(", ".join(runs), tuple(runs)) for runs in (a, b)]
    else:
        said = (known[a[0]] or {}).get("ab") or {} if a else {}
        if len(a) != 1 or not said:
            raise StoreError("name two runs to compare, or one that `ab --run` measured")
        sides = [Side(said[s]["label"], tuple(a), said[s]["variant"]) for s in "ab"]
    chosen: dict[str, Any] = {k: asked.get(k) or said.get(k) for k in ("primary", "declared", "margin", "noise")}
    chosen = {k: v for k, v in chosen.items() if v is not None}
    try:
        document = compare(reader, sides[0], sides[1], **chosen)
    except ValueError as e:
        raise StoreError(str(e)) from e
    return {"run_ids": [*a, *b], **document}


def _run(reader: Reader, run_id: str) -> dict[str, Any]:
    rows = reader.query(f"select spec from runs where run_id = {literal(run_id)}").rows
    if not rows:
        raise StoreError(f"no run is called {run_id!r}; `twinrail runs` lists them")
    return dict(json.loads(rows[0][0] or "{}"))
