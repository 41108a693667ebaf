"""Runs with known figures, written into a store: what a comparison is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from store.records import Attempt, Record, Request, Run, Variable

SHIFT = 10_000_000_000


def requests(
    run_id: str, attempt_id: str, ms: float, *, n: int = 40, osl: int = 11, slow_last: float = 1.0
) -> list[Record]:
    """`n` requests, one after the other, of `ms` each, TTFT a tenth of it; the last takes `slow_last` times as long."""
    out: list[Record] = []
    at = SHIFT
    for i in range(n):
        took = int(ms * 1e6 * (slow_last if i == n - 1 else 1.0))
        out.append(
            Request(
                run_id=run_id,
                attempt_id=attempt_id,
                request_id=i,
                kind="load",
                phase="steady",
                measured=True,
                status="ok",
                isl=100,
                osl=osl,
                scheduled_ns=at,
                sent_ns=at,
                sent_wall_ns=at,
                first_ns=at + took // 10,
                last_ns=at + took,
                end_ns=at + took,
                prompt_tokens=100,
                output_tokens=osl,
                cached_tokens=0,
            )
        )
        at += took
    return out


def attempt(run_id: str, ordinal: int, ms: float, **more: Any) -> list[Record]:
    """One finished attempt whose requests take `ms` each, and its requests."""
    osl, slow = more.pop("osl", 11), more.pop("slow_last", 1.0)
    count, outcome = more.pop("n", 40), more.pop("outcome", "OK")
    known: dict[str, Any] = {
        "attempt_id": f"{run_id}.a{ordinal}", "run_id": run_id, "ordinal": ordinal, "case_name": "D-C1",
        "isl": 100, "osl": osl,
        "concurrency": 1, "repeat": ordinal, "client": "loadgen", "life_id": f"{run_id}.L{ordinal}", "state": "done",
        "outcome": outcome, "case_spec": '{"name": "D", "isl": 100, "osl": 11}',
    }  # fmt: skip
    row = Attempt(**{**known, **more})
    served = outcome not in ("OOM", "ENGINE_CRASH", "CANCELLED")
    return [row, *(requests(run_id, row.attempt_id, ms, n=count, osl=osl, slow_last=slow) if served else [])]


def run(run_id: str, times: Sequence[float], variables: Mapping[str, str] | None = None, **more: Any) -> list[Record]:
    """A run with one attempt for each time in ms, each on a life of its own, and its environment."""
    kind, simulated = more.pop("kind", "run"), more.pop("simulated", False)
    rows: list[Record] = [
        Run(run_id=run_id, kind=kind, deployment="d", plan="D", created_wall_ns=1, state="done", simulated=simulated)
    ]
    said = {"deployment.model": "m", "host.kernel": "6.1", **(variables or {})}
    rows += [Variable(run_id=run_id, name=k, value=v, source="asked", wall_ns=1) for k, v in said.items()]
    for n, ms in enumerate(times, 1):
        rows += attempt(run_id, n, ms, **more)
    return rows


def blocks(run_id: str, pairs: Sequence[tuple[float, float]], n: int = 40, **side_b: Any) -> list[Record]:
    """A run of `ab --run`: A and B once a block, each on a fresh life, `n` requests; `side_b` changes B's attempts."""
    variants = {s: orjson.dumps({"deployment": "d", "vary": "flags.--x", "value": s}).decode() for s in "ab"}
    spec = {"ab": {s: {"label": f"--x={s}", "variant": variants[s]} for s in "ab"} | {"declared": ["flags.--x"]}}
    rows: list[Record] = [
        Run(
            run_id=run_id,
            kind="ab",
            deployment="d",
            plan="D",
            created_wall_ns=1,
            state="done",
            spec=orjson.dumps(spec).decode(),
        )
    ]
    for block, pair in enumerate(pairs, 1):
        for side, ms in zip("ab", pair, strict=True):
            at = 2 * block + (side == "b")
            changes = side_b if side == "b" else {}
            life = f"{run_id}.L{at}"
            rows += attempt(
                run_id,
                at,
                ms,
                **{"n": n, "repeat": block, "case_name": f"D-C1@--x={side}", "variant": variants[side], **changes},
            )
            rows.append(
                Variable(
                    run_id=run_id, life_id=life, name="deployment.flags", value=f"--x {side}", source="asked", wall_ns=1
                )
            )
    return rows
