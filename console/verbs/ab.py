"""`ab`: compare what was measured, or measure both sides in blocks and then compare."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from console.verbs import (
    DONE,
    INFRASTRUCTURE,
    NEGATIVE,
    Place,
    number,
    out,
    out_json,
    print_table,
    run_async,
    say,
    session_of,
)
from store.text import plain

if TYPE_CHECKING:
    from runners.session import Session
    from runners.spec import Inventory

GOOD = ("improve", "no_change")
MAX_CHANGES = 20


@dataclass(frozen=True, slots=True)
class Judging:
    """How the figures are judged; None is left to what the run says, else to the defaults."""

    primary: str | None = None
    declared: list[str] = field(default_factory=list)
    margin: float | None = None
    noise: float | None = None


@dataclass(frozen=True, slots=True)
class AbRequest:
    """What `ab --run` shall measure."""

    a: str
    b: str
    what: list[str]
    vary_one: str | None = None
    deployment: str | None = None
    blocks: int = 6
    keep: bool = False
    why: str | None = None
    changes: str | None = None
    expects: str | None = None
    gate_override: str | None = None


def run_ab(place: Place, request: AbRequest, judging: Judging, *, as_json: bool, foreground: bool) -> int:
    """Measure and compare. Exit code 0: better or no change; 1: worse, or no verdict; 3: not carried out."""
    return run_async(_run_ab(place.inventory(), request, judging, as_json=as_json, foreground=foreground))


async def _run_ab(
    inventory: Inventory, request: AbRequest, judging: Judging, *, as_json: bool, foreground: bool
) -> int:
    from console.verbs.run import follow_to_end
    from store.errors import OwnerGone

    asked = {k: v for k, v in asdict(request).items() if v is not None}
    told = {k: v for k, v in asdict(judging).items() if k != "noise" and v}
    async with session_of(inventory, foreground=foreground) as session:
        run_id = str((await session.order("start_ab", **asked, **told))["run_id"])
        say(f"ab {run_id}: {request.a} against {request.b}, {request.blocks} blocks")
        try:
            await follow_to_end(session, run_id)
        except OwnerGone as e:
            say(f"{e}. `twinrail resume {run_id}`, then `twinrail ab {run_id}`")
            return INFRASTRUCTURE
        return await _compared(session, [run_id], [], judging, as_json=as_json)


def compare_runs(place: Place, a: str, b: str | None, judging: Judging, *, as_json: bool) -> int:
    """Compare runs that are there: each side one run or several with commas; `a` alone is a run of `ab --run`."""
    sides = [[r for r in (side or "").split(",") if r] for side in (a, b)]
    return run_async(_compare(place.inventory(), sides, judging, as_json=as_json))


async def _compare(inventory: Inventory, sides: list[list[str]], judging: Judging, *, as_json: bool) -> int:
    from runners.session import reading

    async with reading(inventory) as session:
        return await _compared(session, sides[0], sides[1], judging, as_json=as_json)


async def _compared(session: Session, a: list[str], b: list[str], judging: Judging, *, as_json: bool) -> int:
    document = await session.compare(
        a, b, primary=judging.primary, declared=judging.declared, margin=judging.margin, noise=judging.noise
    )
    if as_json:
        out_json(document)
    else:
        print_comparison(document)
    return DONE if document["verdict"] in GOOD else NEGATIVE


def print_comparison(document: dict[str, Any]) -> None:
    """Verdict, what changed, the metrics: for people."""
    out(plain(document["sentence"]))
    for reason in document["reasons"][1:]:
        out(f"  {plain(reason)}")
    for side in "ab":
        s = document["sides"][side]
        failed = f", {len(s['failures'])} failed" if s["failures"] else ""
        out(f"{side.upper()}: {plain(s['label'])}, {s['attempts']} attempts on {s['lives']} server lives{failed}")
    shown = [c for c in document["changed"] if c["kind"] != "noise"]
    if shown:
        rows = [[c["kind"], c["name"], _short(c["a"]), _short(c["b"])] for c in shown[:MAX_CHANGES]]
        print_table(["differs", "name", "A", "B"], rows)
    noise = len(document["changed"]) - len(shown)
    hidden = max(0, len(shown) - MAX_CHANGES)
    if noise or hidden:
        out(f"{noise} differences are known noise, {hidden} more are in --json")
    if document["metrics"]:
        print_table(
            ["metric", "A", "B", "effect %", "from", "to", "verdict"],
            [_metric(m) for m in document["metrics"]],
        )
        out(f"* primary, at 95 %; the others share one 5 % among them. A replicate is one {document['replicate']}.")


def _metric(m: dict[str, Any]) -> list[str]:
    name = ("* " if m["primary"] else "") + m["name"] + (f" {m['case']}" if m["case"] else "")
    figures = [number(m[k], ".2f") for k in ("a", "b")]
    return [name, *figures, *(number(m[k], "+.1f") for k in ("effect_pct", "low_pct", "high_pct")), m["verdict"]]


def _short(value: str | None) -> str:
    return "–" if value is None else value if len(value) <= 40 else value[:39] + "…"
