"""What operators ask of a run that is on: journalled in the store, asked twice is asked once, refused in words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runners import orders
from runners.flows.wishes import Wishes
from store.database import Store
from store.records import Attempt, Order, Run

RUN = Run(run_id="r", kind="run", state="running", deployment="d")


def attempt(n: int, **more: Any) -> Attempt:
    base = Attempt(attempt_id=f"r.a{n}", run_id="r", ordinal=n, repeat=n, case_name="D-C4", concurrency=4, seed=n)
    return replace(base, **more)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as store:
        rows = [RUN, attempt(1, state="done", outcome="OK"), attempt(2, state="running"), attempt(3)]
        store.write(rows, urgent=True).result()
        yield store


def journal(store: Store, n: int, kind: str, who: str, run_id: str | None = "r", **params: str) -> None:
    text = "{" + ", ".join(f'"{k}": "{v}"' for k, v in params.items()) + "}"
    row = Order(order_id=f"o{n}", wall_ns=n, who=who, kind=kind, params=text, state="accepted", run_id=run_id)
    store.write([row], urgent=True).result()


def skip(n: int) -> orders.SkipAttempt:
    return orders.SkipAttempt(kind="skip_attempt", run_id="r", attempt_id=f"r.a{n}", who="ann")


def retry(n: int) -> orders.RetryAttempt:
    return orders.RetryAttempt(kind="retry_attempt", run_id="r", attempt_id=f"r.a{n}", who="ann")


async def test_a_new_owner_finds_the_pause_and_the_skips_of_the_old_one(store: Store) -> None:
    journal(store, 1, "pause_run", "ann")
    journal(store, 2, "skip_attempt", "bob", attempt_id="r.a3")
    wishes = Wishes(store, "r")
    assert wishes.paused_by == "ann"
    assert wishes.skipped("r.a3") == "skipped by bob"
    assert wishes.skipped("r.a3v") == "skipped by bob", "the same attempt, repeated after a crash of ours"
    assert wishes.skipped("r.a2") is None


@pytest.mark.parametrize("run_id", ["r", None])
async def test_the_last_of_pause_and_resume_counts(store: Store, run_id: str | None) -> None:
    journal(store, 1, "pause_run", "ann")
    journal(store, 2, "resume", "bob", run_id)
    assert Wishes(store, "r").paused_by is None
    journal(store, 3, "pause_run", "eve")
    assert Wishes(store, "r").paused_by == "eve"
    journal(store, 4, "resume", "bob", "another")
    assert Wishes(store, "r").paused_by == "eve", "another run was resumed"


async def test_a_pause_lasts_until_it_is_lifted_or_the_run_is_stopped(store: Store) -> None:
    for lift in ("resume", "cancel"):
        wishes, cancel = Wishes(store, "r"), asyncio.Event()
        await wishes.take(RUN, orders.PauseRun(kind="pause_run", run_id="r", who="ann"))
        await wishes.take(RUN, orders.PauseRun(kind="pause_run", run_id="r", who="bob"))
        assert wishes.paused_by == "ann", "paused already"
        waiting = asyncio.create_task(wishes.go_on(cancel))
        await asyncio.sleep(0)
        assert not waiting.done()
        wishes.resume() if lift == "resume" else cancel.set()
        await asyncio.wait_for(waiting, 10)


async def test_what_is_on_or_to_come_is_skipped_and_what_is_done_is_not(store: Store) -> None:
    wishes = Wishes(store, "r")
    for n in (2, 3, 3):
        assert "is skipped" in await wishes.take(RUN, skip(n))
        assert wishes.skipped(f"r.a{n}") == "skipped by ann"
    with pytest.raises(orders.OrderError, match="has ended already: OK"):
        await wishes.take(RUN, skip(1))
    with pytest.raises(orders.OrderError, match="has no attempt"):
        await wishes.take(RUN, skip(9))
    with pytest.raises(orders.OrderError, match="pause it or stop it"):
        await wishes.take(replace(RUN, kind="search"), skip(2))


async def test_a_retry_is_a_new_attempt_at_the_end_with_other_prompts_and_the_old_one_stays(store: Store) -> None:
    wishes = Wishes(store, "r")
    assert "as repeat 4" in await wishes.take(RUN, retry(1))
    assert "already" in await wishes.take(RUN, retry(1)), "asked twice, planned once"
    rows = {a["attempt_id"]: a for a in store.query("from attempts").dicts()}
    assert len(rows) == 4
    assert rows["r.a1"]["outcome"] == "OK"
    new = rows["r.a1r"]
    assert (new["ordinal"], new["repeat"], new["state"], new["case_name"]) == (4, 4, "planned", "D-C4")
    assert new["seed"] != rows["r.a1"]["seed"]
    with pytest.raises(orders.OrderError, match="only a done attempt"):
        await wishes.take(RUN, retry(2))
    with pytest.raises(orders.OrderError, match="search --continue"):
        await wishes.take(replace(RUN, kind="search"), retry(1))


@pytest.mark.parametrize("kind", ["pause_run", "skip_attempt", "retry_attempt"])
def test_orders_are_checked_like_any_hostile_input(kind: str) -> None:
    for text in (
        f'{{"kind": "{kind}"}}',
        f'{{"kind": "{kind}", "run_id": "../x", "attempt_id": "a"}}',
        f'{{"kind": "{kind}", "run_id": "r", "attempt_id": "a\'; drop"}}',
        f'{{"kind": "{kind}", "run_id": "r", "attempt_id": "a", "more": 1}}',
    ):
        with pytest.raises(orders.OrderError, match="not an order"):
            orders.parse_order(text, "order")
    with pytest.raises(orders.OrderError, match="may read, not order"):
        orders.parse_order(f'{{"kind": "{kind}", "run_id": "r", "attempt_id": "a"}}', "read")
