"""Stores with a concurrency search in them: climbing, finished, a node lost on the way, and one that a crash ended.

TPOT grows with the load and TPS saturates, so that the frontier has a shape and the SLO of 50 ms cuts it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from store.database import Store
from store.records import Attempt, ClockOffset, Life, LoadTick, NodeState, Phase, Point, Record, Request, Run
from tests.screens.samples import MONO, NOW, OFFSETS, S
from tests.screens.scene import write_all

SEARCH = "20260731-1130-d2"
WALL = NOW + OFFSETS["node5"]  # the client's clock
CASE = {"name": "D2", "isl": 1024, "osl": 64, "concurrency": 16, "requests": 20, "slo": "chat"}
RULES = {"step": 16, "refine": 4, "maximum": 128, "repeats": 2, "stop_at_slo": False, "has_slo": True}
# load -> (outcome, detail, output tokens/s, spread %, within the SLO), in order of work
CLIMB: dict[int, tuple[str, str | None, float | None, float | None, bool | None]] = {
    1: ("OK", None, 24.6, 0.4, True),
    16: ("OK", None, 371.2, 0.9, True),
    32: ("OK", None, 702.8, 1.1, True),
    48: ("TPOT_SLO_EXCEEDED", "TPOT P95 55.2 ms of 50", 838.1, 1.4, False),
    64: ("TPOT_SLO_EXCEEDED", "TPOT P95 71.0 ms of 50", 866.4, 0.8, False),
}
STOP = "at concurrency 80: node7 rank 12: torch.OutOfMemoryError"
OOM = ("OOM", "node7 rank 12: torch.OutOfMemoryError", None, None, False)
REFINED: dict[int, tuple[str, str | None, float | None, float | None, bool | None]] = {
    72: ("TPOT_SLO_EXCEEDED", "TPOT P95 79.3 ms of 50", 861.9, 1.0, False),
    40: ("OK", "1 of 2 repeats: TPOT P95 50.9 ms of 50", 796.0, 1.7, True),
}


STEP = {"concurrency": 80, "why": "climb"}


def tpot_ms(load: int) -> float:
    return 34.0 + 0.5 * max(load - 16, 0) + 0.05 * load


def requests(attempt: str, load: int, n: int, rng: random.Random) -> Iterator[Request]:
    """Measured requests of a repeat, all of its steady phase."""
    for i in range(n):
        sent = MONO - 3000 * S + i * S // 4
        first = sent + int((0.2 + 0.02 * load + 0.1 * rng.random()) * S)
        last = first + int(63 * (tpot_ms(load) + 6 * rng.random() ** 2) * 1e6)
        yield Request(
            run_id=SEARCH,
            attempt_id=attempt,
            request_id=i,
            kind="load",
            phase="steady",
            measured=True,
            status="failed" if i == n - 1 and load >= 64 else "ok",
            sent_ns=sent,
            sent_wall_ns=sent - MONO + WALL,
            first_ns=first,
            last_ns=last,
            end_ns=last + 1_000_000,
            prompt_tokens=1024,
            output_tokens=64,
            cached_tokens=0,
        )


def answer(concurrency: int, bounded_by: str, above: int | None) -> dict[str, Any]:
    return {"concurrency": concurrency, "bounded_by": bounded_by, "above": above}


CLIMBING: dict[str, Any] = {
    "stopped": None,
    "detail": "",
    "max_successful": answer(64, "the search is not over", None),
    "max_tps": answer(64, "the search is not over", None),
    "max_within_slo": answer(32, "TPOT_SLO_EXCEEDED", 48),
    "spread": 0.011,
    "tolerance": 0.011,
}
FINISHED: dict[str, Any] = {
    "stopped": "OOM",
    "detail": STOP,
    "max_successful": answer(72, "OOM", 80),
    "max_tps": answer(64, "TPS_PEAK", 72),
    "max_within_slo": answer(40, "TPOT_SLO_EXCEEDED", 48),
    "spread": 0.012,
    "tolerance": 0.011,
}


def run(verdict: dict[str, Any], **more: Any) -> Run:
    return Run(
        run_id=SEARCH,
        kind="search",
        deployment="tp16",
        plan="D2",
        created_wall_ns=NOW - 2000 * S,
        who="operator",
        simulated=True,
        clock_node="node5",
        spec=json.dumps({"case": CASE, "rules": RULES, "repeats": 2, "step": STEP, "verdict": verdict}),
        **more,
    )


def points(climb: dict[int, Any], rng: random.Random) -> Iterator[Record]:
    """The points of a climb, each with two repeats of a minute and a half."""
    ordinal = 0
    for at, (load, (outcome, detail, tps, spread, within)) in enumerate(climb.items(), 1):
        yield Point(
            run_id=SEARCH,
            ordinal=at,
            concurrency=load,
            outcome=outcome,
            detail=detail,
            repeats=2 if tps else 0,
            input_tps=None if tps is None else 16 * tps,
            output_tps=tps,
            spread_pct=spread,
            within_slo=within,
        )
        for repeat in (1, 2):
            ordinal += 1
            began = NOW - 1900 * S + (ordinal - 1) * 100 * S
            name = f"{SEARCH}-{ordinal}"
            yield attempt(
                ordinal,
                load,
                repeat,
                state="done",
                outcome=outcome,
                started_wall_ns=began,
                ended_wall_ns=began + 90 * S,
            )
            if tps is not None:
                yield phase(name, began)
                yield from requests(name, load, 20, rng)


def attempt(ordinal: int, load: int, repeat: int, **more: Any) -> Attempt:
    return Attempt(
        attempt_id=f"{SEARCH}-{ordinal}",
        run_id=SEARCH,
        ordinal=ordinal,
        case_name=f"D2-C{load}",
        isl=1024,
        osl=64,
        concurrency=load,
        repeat=repeat,
        life_id="life-1",
        node="node5",
        case_spec=json.dumps({**CASE, "concurrency": load, "requests": 5 * load}),
        **more,
    )


def phase(attempt_id: str, began_ns: int) -> Phase:
    return Phase(
        attempt_id=attempt_id,
        run_id=SEARCH,
        node="node5",
        name="steady",
        start_wall_ns=began_ns + OFFSETS["node5"],
        start_mono_ns=MONO - (NOW - began_ns),
    )


def around() -> list[Record]:
    """The server, and the nodes."""
    return [
        Life(
            life_id="life-1",
            run_id=SEARCH,
            deployment="tp16",
            state="ready",
            simulated=True,
            engine="sglang",
            version="0.5.23",
            started_wall_ns=NOW - 1990 * S,
            ready_wall_ns=NOW - 1920 * S,
        ),
        *(NodeState(node=n, state="up", rtt_ms=0.5, wall_ns=NOW - 2 * S) for n in OFFSETS),
        *(
            ClockOffset(run_id=SEARCH, node=n, wall_ns=NOW - 30 * S, offset_ns=o, error_ns=150_000)
            for n, o in OFFSETS.items()
        ),
    ]


def climbing(store: Store) -> None:
    """Five points are settled; the second repeat at 80 is in steady."""
    rng = random.Random(11)
    began = NOW - 40 * S
    ticks = [
        LoadTick(
            run_id=SEARCH,
            attempt_id=f"{SEARCH}-12",
            node="node5",
            wall_ns=WALL - back * S,
            mono_ns=MONO - back * S,
            in_flight=80,
            sent=200 - back,
            done=120 - back,
            failed=0,
            input_tokens=(100 - back) * 13_600,
            output_tokens=(100 - back) * 850 + back % 3,
        )
        for back in range(20, -1, -1)
    ]
    write_all(store, [run(CLIMBING, state="running"), *around(), *points(CLIMB, rng), *ticks])
    write_all(
        store,
        [
            Point(run_id=SEARCH, ordinal=6, concurrency=80),
            attempt(11, 80, 1, state="done", outcome="OK", started_wall_ns=NOW - 150 * S, ended_wall_ns=NOW - 60 * S),
            phase(f"{SEARCH}-11", NOW - 140 * S),
            attempt(12, 80, 2, state="running", started_wall_ns=began),
            phase(f"{SEARCH}-12", began + 10 * S),
            *requests(f"{SEARCH}-11", 80, 20, rng),
            *requests(f"{SEARCH}-12", 80, 12, rng),
        ],
    )


def finished(store: Store) -> None:
    """An OOM at 80 stopped the climb; two refinements, three answers."""
    over = run(FINISHED, state="done", outcome="OK", detail=f"stopped by OOM: {STOP}", ended_wall_ns=NOW - 300 * S)
    climb = {**CLIMB, 80: OOM, **REFINED}
    write_all(store, [over, *around(), *points(climb, random.Random(11))])


def lost(store: Store) -> None:
    """As `climbing`; node7 has not been heard of for 40 s."""
    climbing(store)
    why = "no answer for 40 s: connection timed out"
    write_all(store, [NodeState(node="node7", state="lost", detail=why, wall_ns=NOW - 28 * S)])


def failed(store: Store) -> None:
    """The server did not come up again after the OOM at 16: the search ended with that."""
    why = "node7: exit code 1 before it was ready"
    over = {
        "state": "done",
        "outcome": "START_FAILED",
        "detail": f"concurrency 32: {why}",
        "ended_wall_ns": NOW - 900 * S,
    }
    verdict = {**CLIMBING, "max_successful": answer(1, "OOM", 16), "max_tps": answer(1, "OOM", 16)}
    verdict |= {"max_within_slo": answer(1, "OOM", 16), "stopped": "OOM", "detail": "at concurrency 16: out of memory"}
    climb: dict[int, Any] = {
        1: CLIMB[1],
        16: ("OOM", "node5 rank 3: torch.OutOfMemoryError", None, None, False),
        8: ("START_FAILED", why, None, None, None),
    }
    write_all(store, [run(verdict, **over), *around(), *points(climb, random.Random(11))])


SCENES = (climbing, finished, lost, failed)
