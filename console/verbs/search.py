"""`search`: order it, follow it, print the points and the three answers."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from console.verbs import NEGATIVE, Place, number, out, print_table, run_async, say, session_of
from store.queries import literal
from store.text import plain

if TYPE_CHECKING:
    from runners.session import Session
    from runners.spec import Inventory

TELL_S = 1.0
MAX_DETAIL = 160  # characters of a detail that a line ends with; the whole stands beside its point
_RULES = (
    *("step", "refine", "max_concurrency", "repeats", "stop_at_slo", "stop_at_preemption"),
    *("max_rate", "step_rate", "refine_rate"),
)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What `search` was asked for; None is left to the configuration."""

    what: str
    deployment: str | None = None
    step: int | None = None
    refine: int | None = None
    max_concurrency: int | None = None
    repeats: int | None = None
    stop_at_slo: bool | None = None
    stop_at_preemption: bool | None = None
    max_rate: float | None = None
    step_rate: float | None = None
    refine_rate: float | None = None
    keep: bool = False
    why: str | None = None
    gate_override: str | None = None
    changes: str | None = None
    expects: str | None = None
    vary: dict[str, Any] | None = None

    def rules(self) -> dict[str, float | bool | None]:
        """The part that says how to search."""
        return {k: getattr(self, k) for k in _RULES}

    def params(self) -> dict[str, Any]:
        """As an order's parameters."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}


def run_search(place: Place, request: SearchRequest, *, as_json: bool, foreground: bool) -> int:
    """Exit code: 0 the search came to its end, 1 it did not or no point met the case's SLO, 3 not carried out."""
    from console.verbs.run import asked_once
    from runners.session import planned_without_store

    inventory = place.inventory()
    planned_without_store(inventory, "start_search", **request.params())  # bad usage is told before anything is asked
    if not (as_json or place.demo):
        request = asked_once(request)
    return run_async(_search(inventory, request, as_json=as_json, foreground=foreground))


async def _search(inventory: Inventory, request: SearchRequest, *, as_json: bool, foreground: bool) -> int:
    from runners.flows.order_of_work import search_of

    case, search = search_of(inventory, request.what, **request.rules())
    async with session_of(inventory, foreground=foreground) as session:
        run_id = str((await session.order("start_search", **request.params()))["run_id"])
        climb = f"concurrency {search.max_concurrency} in steps of {search.step}, refined to {search.refine}"
        if search.max_rate is not None:
            climb = (
                f"{search.max_rate:g} requests/s in steps of {search.step_rate:g}, refined to {search.refine_rate:g}"
            )
        say(
            f"search {run_id}: {case.name} up to {climb}, {search.repeats} repeats each; results in "
            f"{inventory.results_path / run_id}"
        )
        return await _followed(session, run_id, as_json=as_json)


@dataclass(frozen=True, slots=True)
class ContinueRequest:
    """How a finished search shall go on; None stays as it was."""

    run_id: str
    refine: int | None = None
    max_concurrency: int | None = None
    max_rate: float | None = None
    repeats: int | None = None
    again: float | None = None
    keep: bool = False


def run_continue(place: Place, request: ContinueRequest, *, as_json: bool, foreground: bool) -> int:
    """Exit code as of `run_search`."""
    return run_async(_continue(place.inventory(), request, as_json=as_json, foreground=foreground))


async def _continue(inventory: Inventory, request: ContinueRequest, *, as_json: bool, foreground: bool) -> int:
    params = {k: v for k, v in asdict(request).items() if v is not None}
    async with session_of(inventory, foreground=foreground) as session:
        await session.order("continue_search", **params)
        say(f"search {request.run_id} goes on")
        return await _followed(session, request.run_id, as_json=as_json)


async def _followed(session: Session, run_id: str, *, as_json: bool) -> int:
    from console.verbs.run import follow

    teller = asyncio.create_task(_tell(session, run_id))
    try:
        code = await follow(session, run_id, as_json=as_json)
    finally:
        teller.cancel()
    met = (await session.sql(f"select within_slo from points where run_id = {literal(run_id)}")).rows
    known = [within for (within,) in met if within is not None]
    return NEGATIVE if code == 0 and known and not any(known) else code


async def _tell(session: Session, run_id: str) -> None:
    """Say each point once it is settled. An owner that is gone is `follow`'s to report."""
    from store.errors import StoreError

    told = 0
    while True:
        with contextlib.suppress(StoreError):
            rows = await session.sql(
                "select concurrency, request_rate, outcome, output_tps, input_tps, detail from points "
                f'where run_id = {literal(run_id)} and outcome is not null order by "ordinal"'
            )
            for c, rate, outcome, output, prompt, detail in rows.rows[told:]:
                rates = f"{number(output)} out tok/s, {number(prompt)} in tok/s"
                load = _load({"concurrency": c, "request_rate": rate})
                say(f"point {load}: {outcome}, {rates}" + plain(_after(detail)))
            told = len(rows.rows)
        await asyncio.sleep(TELL_S)


def print_search(document: dict[str, Any]) -> None:
    """The points by concurrency, what stopped the climb, and the answers, for people."""
    points = sorted(document["points"], key=lambda p: p["request_rate"] or p["concurrency"])
    columns = [
        "req/s" if points and points[0]["request_rate"] else "C",
        "outcome",
        "reps",
        "out tok/s",
        "in tok/s",
        "good/s",
        "CV %",
        "waiting",
    ]
    columns += ["TTFT p50", "p95", "p99", "TPOT p50", "p95", "p99"]
    print_table(columns, [_row(p) for p in points])
    for p in points:
        if p["detail"]:
            out(f"{_load(p)}: {p['detail']}")
    out(f"stopped: {document['stopped'] or 'not yet'}{_after(document['stopped_detail'])}")
    for name, answer in document["answers"].items():
        out(f"{name}: {_answer(answer)}")
    if document.get("max_unpreempted"):
        out(f"max_unpreempted: {_answer(document['max_unpreempted'])}")
    if knee := document.get("knee"):
        out(f"knee: {_load(knee)}, behind it tokens cost most latency (P95 there {number(knee['p95_ms'])} ms)")
    out("TTFT and TPOT in ms; percentiles of fewer than 100 requests are marked ~")


def _after(detail: str | None) -> str:
    """A detail as the end of a line: its beginning, when a crash has much to say."""
    if not detail:
        return ""
    return f": {detail}" if len(detail) <= MAX_DETAIL else f": {detail[:MAX_DETAIL]} …"


def _load(row: dict[str, Any]) -> str:
    rate = row.get("request_rate")
    return f"concurrency {row['concurrency']}" if rate is None else f"{rate:g} requests/s"


def _row(point: dict[str, Any]) -> list[str]:
    def stat(metric: str, which: str) -> str:
        value = point[metric][which]
        few = which == "p99" and value is not None and point[metric]["n"] < 100
        return f"~{number(value)}" if few else number(value)

    figures = [number(point.get(k)) for k in ("output_tps", "input_tps", "goodput_rps", "spread_pct", "waiting")]
    latencies = [stat(m, s) for m in ("ttft_ms", "tpot_ms") for s in ("p50", "p95", "p99")]
    return [
        number(point["request_rate"] or point["concurrency"], "g"),
        point["outcome"] or "–",
        number(point["repeats"], "d"),
        *figures,
        *latencies,
    ]


def _answer(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return "none"
    rates = f"{number(answer['output_tps'])} out tok/s, {number(answer['input_tps'])} in tok/s"
    above = f" at {answer['above']:g}" if answer.get("above") else ""
    return f"{_load(answer)}, {rates}; bounded by {answer.get('bounded_by')}{above}"
