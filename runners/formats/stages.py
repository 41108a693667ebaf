"""Start-up stages of an engine: a table of patterns whose named groups become figures in base units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from runners.formats import text as cells
from runners.formats.base import Event, Value
from runners.formats.log_events import located
from runners.formats.prefix import Prefix

_COUNTS: Final = frozenset(
    {
        "world_size",
        "rank",
        "local_rank",
        "kv_tokens",
        "context_tokens",
        "gpu_blocks",
        "cpu_blocks",
        "max_running",
        "chunked_prefill_tokens",
        "max_prefill_tokens",
    }
)
_TEXTS: Final = frozenset({"version", "nccl_version", "device", "model", "dtype", "model_type"})


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of one engine, in the order in which its lines are tried.

    A group `x_gib` becomes `x_bytes`; a digit 2 or 3 before the end only keeps names apart inside one pattern.
    """

    hint: re.Pattern[str]
    table: tuple[tuple[str, re.Pattern[str]], ...]

    def event_of(self, message: str, time: str | None, prefix: Prefix | None, rank: int | None = None) -> Event | None:
        """A `start_stage` (or `ready`) event, None when the message is of no stage."""
        message = message[: cells.MATCHED]
        if self.hint.search(message) is None:
            return None
        for stage, pattern in self.table:
            match = pattern.search(message)
            if match is None:
                continue
            detail: dict[str, Value] = {"stage": stage, "line": cells.shown(message)}
            for name, value in match.groupdict().items():
                if value is not None:
                    _figure(detail, re.sub(r"[23](?=_|$)", "", name), value)
            own = detail.get("rank", rank)
            return located(Event("ready" if stage == "ready" else "start_stage", None, own, time, detail), prefix)
        return None


def _figure(detail: dict[str, Value], name: str, value: str) -> None:
    """One named group as a detail entry in base units."""
    if name.endswith("_gib"):
        size = cells.real(value)
        detail[name[:-4] + "_bytes"] = None if size is None else round(size * 1024**3)
    elif name in _COUNTS:
        detail[name] = cells.integer(value.replace(",", ""))
    elif name in _TEXTS:
        detail[name] = value
    else:
        found = cells.number(value)
        detail[name] = value if found is None else found


def table(*rows: tuple[str, str]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Compile (stage, pattern) pairs."""
    return tuple((stage, re.compile(pattern)) for stage, pattern in rows)
