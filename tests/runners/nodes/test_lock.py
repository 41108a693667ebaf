"""The node lock: one run at a time, expiring, safe in a shared folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runners.nodes import lock
from runners.nodes.link import Link, NodeError, open_link
from runners.spec import Node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Link]:
    made = open_link(Node(name="near", host="local", env={lock.ROOT_VARIABLE: str(tmp_path / "lock")}))
    yield made
    await made.close()


async def held_by(node: Link, run_id: str) -> str:
    with pytest.raises(NodeError) as e:
        await lock.acquire(node, run_id, 60)
    assert e.value.kind == "held"
    return str(e.value)


async def test_a_second_run_is_told_whose_the_first_is(node: Link) -> None:
    claim = await lock.acquire(node, "first", 60)
    assert await lock.inspect(node) == [claim]
    text = await held_by(node, "second")
    assert "first" in text
    assert claim.who in text
    assert await lock.inspect(node) == [claim]  # the loser left nothing


async def test_the_same_run_renews_its_claim(node: Link) -> None:
    claim = await lock.acquire(node, "mine", 10)
    longer = await lock.extend(node, "mine", 100)
    assert longer.expires_s >= claim.expires_s + 89
    assert await lock.inspect(node) == [longer]


async def test_release_gives_it_back_and_does_not_hurt_twice(node: Link) -> None:
    await lock.acquire(node, "mine", 60)
    await lock.release(node, "other")
    assert len(await lock.inspect(node)) == 1
    await lock.release(node, "mine")
    await lock.release(node, "mine")
    assert await lock.inspect(node) == []
    await lock.acquire(node, "other", 60)


async def test_a_dead_owners_claim_runs_out_and_is_swept(node: Link, tmp_path: Path) -> None:
    await lock.acquire(node, "dead", 1)
    await asyncio.sleep(2.1)
    assert await lock.inspect(node) == []
    await lock.acquire(node, "next", 60)
    assert [p.name for p in (tmp_path / "lock").iterdir()] == ["next"]


async def test_of_many_at_once_at_most_one_wins(node: Link) -> None:
    async def attempt(i: int) -> bool:
        try:
            await lock.acquire(node, f"run{i}", 60)
        except NodeError:
            return False
        return True

    for turn in range(3):
        won = await asyncio.gather(*[attempt(turn * 10 + i) for i in range(5)])
        assert sum(won) <= 1
        assert len(await lock.inspect(node)) == sum(won)
        for i in range(5):
            await lock.release(node, f"run{turn * 10 + i}")


@pytest.mark.parametrize("trap", ["link", "file", "open to all"])
async def test_a_folder_that_is_a_trap_is_refused(node: Link, tmp_path: Path, trap: str) -> None:
    root, elsewhere = tmp_path / "lock", tmp_path / "elsewhere"
    if trap == "link":
        elsewhere.mkdir(mode=0o700)
        root.symlink_to(elsewhere)
    elif trap == "file":
        root.write_text("")
    else:
        root.mkdir()
        root.chmod(0o777)
    with pytest.raises(NodeError) as e:
        await lock.acquire(node, "mine", 60)
    assert e.value.kind == "permission"
    assert not elsewhere.exists() or list(elsewhere.iterdir()) == []


async def test_what_others_plant_is_passed_over_or_made_harmless(node: Link, tmp_path: Path) -> None:
    await lock.acquire(node, "mine", 60)
    root = tmp_path / "lock"
    (root / "a file").write_text("9999999999 x y")
    (root / "link").symlink_to("mine")
    for name, info in (("empty", ""), ("words", "never who host"), ("huge", "9" * 5000), ("old", "1 who host")):
        (root / name).mkdir()
        (root / name / "info").write_text(info)
    (root / "odd").mkdir()
    (root / "odd" / "info").write_bytes(b"9999999999 \x1b[2Jwho\xff $(id) host\n")
    claims = await lock.inspect(node)
    assert {c.run_id for c in claims} <= {"mine", "odd"}
    assert all(text.isprintable() and "\x1b" not in text for c in claims for text in (c.who, c.host, c.user))


async def test_a_run_id_that_could_be_a_path_is_refused(node: Link) -> None:
    with pytest.raises(ValueError, match="not a run id"):
        await lock.acquire(node, "../x", 60)
