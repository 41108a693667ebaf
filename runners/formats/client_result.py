"""Results of load clients in one shape: our definitions computed from per-request data, the client's own beside them.

Ours (DESIGN section 3): TTFT = first token - sent; TPOT = (E2E - TTFT) / (output tokens - 1), null below 2 tokens;
percentiles by linear interpolation over successful requests; a TTFT of 0 is a failure, not a sample; rates over the
window from the first send to the last end. Without per-request data ours are null.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from runners.formats.base import Column, Row, columns

METRICS: Final = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")
DIFFERS_PCT: Final = 2.0  # field report 33: larger differences between the client's figure and ours are shown
ENOUGH_FOR_P99: Final = 100
SUCCESS_SHARE: Final = 0.99


@dataclass(slots=True)
class Request:
    """One request; times in ms, `sent_s` on any clock of the client. `gaps_ms`: between successive chunks."""

    ok: bool
    input_tokens: int | None = None
    output_tokens: int | None = None
    ttft_ms: float | None = None
    e2e_ms: float | None = None
    gaps_ms: Sequence[float] = ()
    sent_s: float | None = None
    tpot_ms: float | None = None
    error: str | None = None


@dataclass(slots=True)
class Result:
    """What a parser found out about one run, before the shaping."""

    client: str
    model: str | None = None
    concurrency: float | None = None
    asked_rate: float | None = None  # requests/s, None = unlimited or not known
    duration_s: float | None = None
    requests: list[Request] = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)  # the client's figures, in the names of OWN
    flags: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    ok: int | None = None
    failed: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    rounded: bool = False  # the duration is a rounded print: no rate can be computed from it


def finite(value: Any) -> float | None:
    """A finite number, else None (also for booleans and text)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def whole(value: Any) -> int | None:
    """A whole number, else None."""
    number = finite(value)
    return int(number) if number is not None and number == int(number) else None


def percentile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the two nearest ranks of a sorted, non-empty sequence (numpy's default)."""
    at = (len(ordered) - 1) * share
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def summary(values: Iterable[float | None]) -> dict[str, float | int] | None:
    """{n, mean, p50, p95, p99} of the values that are there; None without any."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    return {
        "n": len(ordered),
        "mean": math.fsum(ordered) / len(ordered),
        "p50": percentile(ordered, 0.50),
        "p95": percentile(ordered, 0.95),
        "p99": percentile(ordered, 0.99),
    }


def _settle(request: Request) -> Request:
    """A success without a first-token time is a failure when the run streams: TTFT 0 is no sample."""
    if request.ok and request.ttft_ms == 0:
        request.ok = False
        request.error = request.error or "TTFT 0"
    if request.ok and request.tpot_ms is None and request.e2e_ms is not None and request.ttft_ms is not None:
        tokens = request.output_tokens or 0
        request.tpot_ms = (request.e2e_ms - request.ttft_ms) / (tokens - 1) if tokens > 1 else None
    return request


def _window_s(requests: Sequence[Request]) -> float | None:
    """First send to last end of the requests that have both."""
    ends = [
        item.sent_s + item.e2e_ms / 1000 for item in requests if item.sent_s is not None and item.e2e_ms is not None
    ]
    starts = [item.sent_s for item in requests if item.sent_s is not None]
    return max(ends) - min(starts) if ends and starts and max(ends) > min(starts) else None


def shaped(result: Result) -> Row:
    """The row of one run."""
    zero = sum(item.ok and item.ttft_ms == 0 for item in result.requests)
    requests = [_settle(item) for item in result.requests]
    good = [item for item in requests if item.ok]
    flags = list(result.flags)
    if zero:
        flags.append(f"ttft_zero: {zero} requests without a first-token time count as failed here")
    row: Row = {
        "client": result.client,
        "model": result.model,
        "concurrency": result.concurrency,
        "asked_request_rate": result.asked_rate,
        "requests_ok": len(good) if requests else result.ok,
        "requests_failed": len(requests) - len(good) if requests else result.failed,
        "duration_s": result.duration_s,
        "window_s": _window_s(requests),
        "input_tokens": _total(good, "input_tokens") if requests else result.input_tokens,
        "output_tokens": _total(good, "output_tokens") if requests else result.output_tokens,
    }
    span = row["window_s"] or (None if result.rounded else row["duration_s"])
    for name, tokens in (("input_tps", row["input_tokens"]), ("output_tps", row["output_tokens"])):
        row[name] = tokens / span if tokens is not None and span else None
    both = None not in (row["input_tps"], row["output_tps"])
    row["total_tps"] = row["input_tps"] + row["output_tps"] if both else None
    row["request_rate"] = row["requests_ok"] / span if row["requests_ok"] is not None and span else None
    row["ttft_ms"] = summary(item.ttft_ms for item in good)
    row["tpot_ms"] = summary(item.tpot_ms for item in good)
    row["itl_ms"] = summary(gap for item in good for gap in item.gaps_ms)
    row["e2e_ms"] = summary(item.e2e_ms for item in good)
    row["errors"] = _errors(requests)
    row["own"] = {key: value for key, value in result.own.items() if value not in (None, {})}
    row["flags"] = flags + _general_flags(row, requests, good, result)
    row["extra"] = result.extra
    return row


def _total(good: Sequence[Request], name: str) -> int | None:
    counts = [getattr(item, name) for item in good]
    return sum(counts) if counts and None not in counts else None


def _errors(requests: Sequence[Request]) -> dict[str, int]:
    """Error texts (last line, bounded) with their counts: the client's view, the server's log may be silent."""
    counts: dict[str, int] = {}
    for item in requests:
        if not item.ok:
            lines = (item.error or "failed without a text").strip().splitlines() or ["failed without a text"]
            text = "".join(char for char in lines[-1] if char.isprintable())[:160]
            if text in counts or len(counts) < 50:
                counts[text] = counts.get(text, 0) + 1
    return counts


def _general_flags(row: Row, requests: Sequence[Request], good: Sequence[Request], result: Result) -> list[str]:
    flags = []
    ok, failed = row["requests_ok"], row["requests_failed"]
    if not requests:
        flags.append("no_per_request_data: our definitions cannot be computed, only the client's figures are there")
    if ok == 0:
        flags.append("no_success: no request succeeded")
    elif ok is not None and failed:
        share = ok / (ok + failed)
        if share < SUCCESS_SHARE:
            flags.append(f"too_few_successes: {share:.1%}, under {SUCCESS_SHARE:.0%}")
        flags.append("rate_over_survivors: the client's throughput is over the requests that survived")
    if ok and ok < ENOUGH_FOR_P99:
        flags.append(f"p99_of_fewer_than_100: {ok} requests")
    chunked = sum(
        1 for item in good if item.gaps_ms and item.output_tokens and len(item.gaps_ms) + 1 < item.output_tokens
    )
    if chunked:
        flags.append(f"itl_per_chunk: {chunked} requests got several tokens in a chunk; itl is per chunk")
    flags += _differences(row, result.own)
    return flags


def _differences(row: Row, own: Mapping[str, Any]) -> list[str]:
    """Where the client's figure is more than 2 % from ours."""
    found = []
    for name in ("input_tokens", "output_tokens", "input_tps", "output_tps", "request_rate"):
        ours, theirs = finite(row.get(name)), finite(own.get(name))
        found += _apart(name, ours, theirs)
    for name in METRICS:
        ours_map, theirs_map = row.get(name) or {}, own.get(name) or {}
        for part in ("mean", "p50", "p95", "p99"):
            found += _apart(f"{name}.{part}", finite(ours_map.get(part)), finite(theirs_map.get(part)))
    return found


def _apart(name: str, ours: float | None, theirs: float | None) -> list[str]:
    if ours is None or theirs is None or ours == theirs:
        return []
    apart = abs(theirs - ours) / max(abs(ours), 1e-12) * 100
    return [f"differs: {name} is {theirs:.6g} by the client, {ours:.6g} by ours"] if apart > DIFFERS_PCT else []


def own_metric(source: Mapping[str, Any], keys: Mapping[str, str], factor: float = 1) -> dict[str, float]:
    """{mean, p50, ...} of the client's own figures: part -> key of the file; absent and non-finite ones left out."""
    found = {part: finite(source.get(key)) for part, key in keys.items()}
    return {part: value * factor for part, value in found.items() if value is not None}


COLUMNS: Final[tuple[Column, ...]] = columns(
    """
    client          text  -
    model           text  -
    concurrency     float -
    asked_request_rate float 1/s       null: unlimited or unknown
    requests_ok     int   -            TTFT 0 counts as failed
    requests_failed int   -            null when the client does not tell
    duration_s      float s            as the client measured it
    window_s        float s            first send to last end, from per-request times
    input_tokens    int   tokens       counted, successful requests
    output_tokens   int   tokens
    input_tps       float tokens/s     over window_s, else duration_s
    output_tps      float tokens/s
    total_tps       float tokens/s
    request_rate    float 1/s
    ttft_ms         map   ms           {n, mean, p50, p95, p99}, linear percentiles
    tpot_ms         map   ms
    itl_ms          map   ms           gaps between chunks
    e2e_ms          map   ms
    errors          map   -            error text -> count
    own             map   -            the client's own figures, same names where they mean the same
    flags           list  -            known defects and differences over 2 %
    extra           map   -
    """
)
