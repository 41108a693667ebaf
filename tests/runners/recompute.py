"""Request metrics recomputed from loadgen's raw lines, sharing no code with the product. Standard library only.

    python tests/runners/recompute.py LINES.jsonl      prints both windows as JSON

all       from the first send to the last end of the measured requests
steady    from the line of phase `steady` to the last end of the measured requests; None without that line
Percentiles are over measured requests that ended well, linear interpolation; of `steady` those sent in that phase.
Rates count what arrived in the window (both ends belong to it), of every request that is not warm-up: output tokens
by the chunk that brought them, input tokens (as the server counted them) at the request's first token; `request_rate`
counts requests that ended well in the window. Chunks of unknown size share the request's counted total evenly.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]
MS = 1e6


def read(raw: bytes) -> list[Line]:
    """The lines of one run of loadgen."""
    return [json.loads(line) for line in raw.splitlines() if line.strip()]


def percentile(values: Sequence[float], share: float) -> float | None:
    """Linear interpolation between closest ranks (numpy's default); None without values."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """n, mean and percentiles of a sample."""
    return {
        "n": len(values),
        "mean": math.fsum(values) / len(values) if values else None,
        **{f"p{share}": percentile(values, share / 100) for share in (50, 95, 99)},
    }


def arrivals(done: Line) -> list[tuple[int, float]]:
    """(instant, output tokens) of each chunk of a request."""
    moments, tokens = done["chunk_ns"], done["chunk_tokens"]
    total = (done["usage"] or {}).get("completion")
    if done["tokens_per_chunk"] == "assumed" and total is not None:
        return [(done["sent_ns"] + moment, total / len(moments)) for moment in moments]
    return [(done["sent_ns"] + moment, count) for moment, count in zip(moments, tokens, strict=True)]


def tpot(done: Line) -> float | None:
    """Time per output token after the first, ms; None below two counted tokens."""
    total = (done["usage"] or {}).get("completion")
    return None if total is None or total < 2 else (done["last_ns"] - done["first_ns"]) / (total - 1) / MS


def gaps(done: Line) -> list[float]:
    """Times between successive chunks, ms."""
    moments = done["chunk_ns"]
    return [(later - earlier) / MS for earlier, later in itertools.pairwise(moments)]


def window(dones: Sequence[Line], chosen: Iterable[Line], start: int, end: int) -> dict[str, Any]:
    """The figures of one window: `chosen` are the measured requests it is about, `dones` all that brought load."""
    chosen = list(chosen)
    well = [done for done in chosen if done["status"] == "ok"]
    seconds = (end - start) / 1e9
    output = round(math.fsum(n for done in dones for moment, n in arrivals(done) if start <= moment <= end))
    inputs = sum(
        (done["usage"] or {}).get("prompt") or 0
        for done in dones
        if done["first_ns"] is not None and start <= done["first_ns"] <= end
    )
    ended = sum(done["status"] == "ok" and start <= done["end_ns"] <= end for done in dones)
    return {
        "requests": {
            status: sum(done["status"] == status for done in chosen) for status in ("ok", "failed", "timed_out", "cut")
        },
        "tokens": {"input": inputs, "output": output},
        "duration_s": seconds,
        "input_tps": inputs / seconds,
        "output_tps": output / seconds,
        "total_tps": (inputs + output) / seconds,
        "request_rate": ended / seconds,
        "ttft_ms": spread([(done["first_ns"] - done["sent_ns"]) / MS for done in well]),
        "tpot_ms": spread([value for done in well if (value := tpot(done)) is not None]),
        "itl_ms": spread([gap for done in well for gap in gaps(done)]),
        "e2e_ms": spread([(done["last_ns"] - done["sent_ns"]) / MS for done in well]),
    }


def windows(lines: Sequence[Line]) -> dict[str, dict[str, Any] | None]:
    """`all` and `steady` of one run; None for a window that the run does not have."""
    dones = [line for line in lines if line["t"] == "done" and line["kind"] != "warmup"]
    measured = [done for done in dones if done["measured"]]
    if not measured:
        return {"all": None, "steady": None}
    first, last = min(done["sent_ns"] for done in measured), max(done["end_ns"] for done in measured)
    began = [line["mono_ns"] for line in lines if line["t"] == "phase" and line["name"] == "steady"]
    steady = None
    if began and began[0] < last:
        steady = window(dones, [done for done in measured if done["phase"] == "steady"], began[0], last)
    return {"all": window(dones, measured, first, last), "steady": steady}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(windows(read(Path(sys.argv[1]).read_bytes())), indent=1) + "\n")
