"""A mixed attempt: sixteen streams that decode, three long prefills put among them, and what they suffer from it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from store.database import Store
from store.records import Attempt, EngineSample, NodeState, Phase, Record, Request
from tests.screens.samples import MONO, NOW, OFFSETS, RUN, S
from tests.screens.scene import life, run_at_hand, write_all

ATTEMPT = f"{RUN}-1"
WALL = NOW + OFFSETS["node5"]
STEADY = MONO - 120 * S
SPANS = ((30, 7.0), (60, 8.0), (90, 6.5))  # seconds after steady began, and how long each injected one took
CASE = {
    "name": "M1",
    "isl": 1024,
    "osl": 256,
    "concurrency": 16,
    "inject": {"isl": 131_072, "osl": 1, "every": 30.0, "count": 3},
}


def wall(mono: int) -> int:
    return mono - MONO + WALL


def gap_ms(second: float, rng: random.Random) -> float:
    """Between two chunks: 40 ms, thrice that beside a prefill, and a while longer after it."""
    for begun, took in SPANS:
        if begun <= second < begun + took:
            return 120.0 + 40 * rng.random()
        if begun + took <= second < begun + took + 3:
            return 60.0 + 5 * rng.random()
    return 40.0 + 4 * rng.random()


def background(until_s: float) -> Iterator[Request]:
    rng = random.Random(3)
    n = 0
    for slot in range(16):
        now = slot / 16
        while now < until_s:
            sent = STEADY + int(now * S)
            chunks = [int(0.3 * S)]
            while len(chunks) < 256 and now + chunks[-1] / S < until_s:
                chunks.append(chunks[-1] + int(gap_ms(now + chunks[-1] / S, rng) * 1e6))
            yield request(n, "load", sent, chunks)
            now += chunks[-1] / S + 0.05
            n += 1


def request(n: int, kind: str, sent: int, chunks: list[int]) -> Request:
    return Request(
        run_id=RUN,
        attempt_id=ATTEMPT,
        request_id=n,
        kind=kind,
        phase="steady",
        measured=kind == "load",
        status="ok",
        isl=1024,
        sent_ns=sent,
        sent_wall_ns=wall(sent),
        first_ns=sent + chunks[0],
        last_ns=sent + chunks[-1],
        end_ns=sent + chunks[-1] + 1_000_000,
        prompt_tokens=1024,
        output_tokens=len(chunks),
        tokens_per_chunk="counted",
        chunk_ns=chunks,
        chunk_tokens=[1] * len(chunks),
    )


def injections(count: int) -> Iterator[Request]:
    for i, (begun, took) in enumerate(SPANS[:count]):
        sent = STEADY + begun * S
        yield replace(request(10_000 + i, "inject", sent, [int(took * S)]), isl=131_072, prompt_tokens=131_072)


def queue(until_s: int) -> Iterator[Record]:
    for second in range(until_s):
        waits = any(begun <= second < begun + took for begun, took in SPANS)
        at = wall(STEADY + second * S)
        yield EngineSample(
            run_id=RUN, node="node5", wall_ns=at, source="metrics", life_id="life-1", running=16.0, waiting=float(waits)
        )


def attempt(**more: Any) -> Attempt:
    return Attempt(
        attempt_id=ATTEMPT,
        run_id=RUN,
        ordinal=1,
        case_name="M1-C16",
        isl=1024,
        osl=256,
        concurrency=16,
        life_id="life-1",
        node="node5",
        case_spec=json.dumps(CASE),
        **more,
    )


def steady(**more: Any) -> Phase:
    return Phase(
        attempt_id=ATTEMPT,
        run_id=RUN,
        node="node5",
        name="steady",
        start_wall_ns=wall(STEADY),
        start_mono_ns=STEADY,
        **more,
    )


def mixed(store: Store) -> None:
    """All three were put in; the attempt is over."""
    over = {"state": "done", "outcome": "OK", "ended_wall_ns": NOW}
    rows: list[Record] = [run_at_hand(**over), life(state="ready"), steady(end_wall_ns=WALL, end_mono_ns=MONO)]
    rows += [attempt(started_wall_ns=NOW - 130 * S, **over), *background(119), *injections(3), *queue(119)]
    write_all(store, rows)


def mixing(store: Store) -> None:
    """The second prefill is on its way."""
    rows: list[Record] = [run_at_hand(state="running"), life(state="ready"), steady()]
    rows += [attempt(state="running", started_wall_ns=NOW - 75 * S), *background(66), *injections(1), *queue(66)]
    write_all(store, rows)


def broken(store: Store) -> None:
    """The second long request ran out of memory, and the engine with it."""
    over = {"state": "done", "outcome": "OOM", "detail": "node7 rank 12: torch.OutOfMemoryError", "ended_wall_ns": NOW}
    long = replace(
        request(10_001, "inject", STEADY + 60 * S, [S]),
        status="failed",
        error="reset",
        first_ns=None,
        last_ns=None,
        end_ns=STEADY + 64 * S,
        chunk_ns=None,
        chunk_tokens=None,
        prompt_tokens=None,
        isl=131_072,
    )
    rows: list[Record] = [run_at_hand(**over), life(state="gone"), steady(end_wall_ns=WALL, end_mono_ns=MONO)]
    rows += [attempt(started_wall_ns=NOW - 75 * S, **over), *background(64), *injections(1), long, *queue(64)]
    write_all(store, rows)


def unheard(store: Store) -> None:
    """As `mixing`; node7 has not been heard of for 40 s."""
    mixing(store)
    why = "no answer for 40 s: connection timed out"
    write_all(store, [NodeState(node="node7", state="lost", detail=why, wall_ns=NOW - 28 * S)])


SCENES = (mixed, mixing, broken, unheard)
