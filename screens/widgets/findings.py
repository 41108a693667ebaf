"""What needs a look: open findings, gates that did not pass, warnings and fatal events of the logs."""

from __future__ import annotations

from typing import Any

from screens.widgets.lamps import lamp
from screens.widgets.table import Column, Row, Table
from screens.widgets.text import Span, clean, stamp


def _sign(row: dict[str, Any]) -> Span:
    return lamp(row["severity"])


def _what(row: Row) -> Span:
    where = f"{clean(row['node'], 40)}: " if row["node"] else ""
    times = f" (x{row['count']})" if (row["count"] or 1) > 1 else ""
    detail = f": {clean(row['detail'], 300)}" if row["detail"] else ""
    step = f"  next: {clean(row['next_step'], 200)}" if row["next_step"] else ""
    text = f"{where}{clean(row['title'], 200)}{times}{detail}{step}"
    return text, "bad" if row["severity"] in ("fatal", "fail") else ""


class Findings(Table):
    """Rows of `live_findings`, the worst first. Enter opens one."""

    def __init__(self, *, ident: str | None = None) -> None:
        columns = (
            Column("", 1, _sign),
            Column("", 8, lambda r: (stamp(r["last_ns"]), "dim"), keep=2),
            Column("", 0, _what),
        )
        super().__init__("findings", columns, key="key", empty="nothing to report", ident=ident, header=False)
