"""The parts of the simulated engine by themselves: blocks, scheduler, cost, and the file as a stand-alone script."""

import ast
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.payload import sim
from tests.runners.sim_helper import SIM


def test_the_file_needs_nothing_but_an_old_python() -> None:
    tree = ast.parse(SIM.read_text(), feature_version=(3, 9))
    roots = {n.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names}
    roots |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert roots <= set(sys.stdlib_module_names)


def request(tokens: list[int], limit: int, eos: int = 1 << 60) -> sim.Request:
    return sim.Request(f"r{tokens[0]}", tokens, limit, eos, True, lambda *_: None)


def check(pool: sim.BlockPool, holders: list[list[int]]) -> None:
    """Every block is free or referenced, exactly as often as it is held; what is found by hash has that hash."""
    for block in range(pool.total):
        held = sum(blocks.count(block) for blocks in holders)
        assert pool.refs[block] == held
        assert (block in pool.free) == (held == 0)
    assert all(pool.hash_of[block] == digest for digest, block in pool.by_hash.items())
    assert len(pool.by_hash) == sum(h is not None for h in pool.hash_of)


@settings(max_examples=150, deadline=None)
@given(
    blocks=st.integers(1, 12),
    moves=st.lists(st.tuples(st.sampled_from("aprs"), st.integers(0, 9), st.integers(0, 5)), max_size=40),
)
def test_blocks_are_never_lost_nor_handed_out_twice(blocks: int, moves: list[tuple[str, int, int]]) -> None:
    pool = sim.BlockPool(blocks, 4, caching=True)
    held: list[list[int]] = []
    for move, which, amount in moves:
        if move == "a":
            before = len(pool.free)
            got = pool.allocate(amount)
            assert (got is None) == (amount > before)
            if got is not None:
                assert len(set(got)) == amount
                held.append(got)
        elif move == "p" and held:
            for i, block in enumerate(held[which % len(held)]):
                pool.publish(block, which * 10 + i)
        elif move == "r" and held:
            pool.release(held.pop(which % len(held)))
        elif move == "s":
            found = pool.match([which * 10 + i for i in range(5)])
            pool.acquire(found)
            held.append(found)
        check(pool, held)
        assert pool.reset() == (pool.used == 0)
    for blocks_of in held:
        pool.release(blocks_of)
    assert (pool.used, len(pool.free)) == (0, blocks)


@settings(max_examples=120, deadline=None)
@given(
    prompts=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2), st.integers(1, 20)), min_size=1, max_size=10),
    size=st.integers(1, 6),
    slots=st.integers(1, 6),
    chunk=st.integers(1, 30),
    caching=st.booleans(),
    prefill_first=st.booleans(),
    spare=st.integers(0, 30),
    drops=st.sets(st.integers(0, 9), max_size=3),
)
def test_every_request_ends_with_exactly_its_tokens_whatever_the_room(
    prompts: list[tuple[int, int, int]],
    size: int,
    slots: int,
    chunk: int,
    caching: bool,
    prefill_first: bool,
    spare: int,
    drops: set[int],
) -> None:
    room = -(-max(length + limit for length, _, limit in prompts) // size) + spare
    pool = sim.BlockPool(room, size, caching)
    scheduler = sim.Scheduler(pool, slots, chunk, prefill_first)
    requests = [request([family * 1000 + i for i in range(length)], limit) for length, family, limit in prompts]
    for req in requests:
        scheduler.submit(req)
    for step in range(20000):
        batch = scheduler.schedule()
        assert batch.tokens <= chunk
        assert len(scheduler.running) <= slots
        assert batch.tokens == batch.prefill_tokens + batch.decode_seqs
        if prefill_first:
            assert not (batch.prefill_seqs and batch.decode_seqs)
        if not batch.items:
            break
        if step in drops and scheduler.running:
            scheduler.drop(scheduler.running[0])
        for req in scheduler.complete(batch):
            scheduler.append(req, step)
        check(pool, [req.blocks for req in requests])
        for req in scheduler.running:
            assert req.computed <= len(req.blocks) * size
    assert not scheduler.running
    assert not scheduler.waiting
    assert pool.used == 0
    dropped = [req for req in requests if req.out < req.max_tokens]
    assert len(dropped) <= len(drops)
    assert all(req.state == "done" and len(req.tokens) == req.prompt + req.out for req in requests)


def test_a_shared_prefix_is_computed_once() -> None:
    pool = sim.BlockPool(100, 4, caching=True)
    scheduler = sim.Scheduler(pool, 8, 64, prefill_first=False)
    for number in (0, 1):
        req = request([1, 2, 3, 4, 5, 6, 7, 8, 9 + number], 1)
        scheduler.submit(req)
        batch = scheduler.schedule()
        assert batch.prefill_tokens == (9, 1)[number]
        assert req.cached == (0, 8)[number]
        for got in scheduler.complete(batch):
            scheduler.append(got, 0)
    assert pool.used == 0


def cost(*args: str) -> sim.CostModel:
    return sim.CostModel(sim.parse(["--noise", "0", *args]))


def decode(seqs: int, context: int) -> sim.Batch:
    batch = sim.Batch()
    batch.tokens, batch.decode_seqs, batch.context = seqs, seqs, seqs * context
    return batch


def prefill(tokens: int) -> sim.Batch:
    batch = sim.Batch()
    batch.tokens, batch.prefill_tokens, batch.pairs = tokens, tokens, tokens * tokens // 2
    return batch


TWO = ("--tp", "16", "--nnodes", "2")


def test_a_decode_step_of_the_home_case_takes_30_to_40_ms() -> None:
    assert 0.030 < cost(*TWO).step(decode(32, 1500))[0] < 0.040
    assert 0.020 < cost(*TWO).step(decode(1, 1500))[0] < 0.030


def test_pipeline_across_the_nodes_wins_prefill_and_loses_single_stream_decode() -> None:
    pipelined = ("--tp", "8", "--pp", "2", "--nnodes", "2")
    assert cost(*TWO).step(decode(1, 1000))[0] < cost(*pipelined).step(decode(1, 1000))[0]
    assert cost(*TWO).step(prefill(2048))[0] > cost(*pipelined).step(prefill(2048))[0]
    assert cost(*TWO).step(prefill(2048))[1] > 10 * cost(*pipelined).step(prefill(2048))[1] > 0
    assert cost("--tp", "8").step(prefill(2048))[1] == 0


def test_noise_and_seed() -> None:
    first, again, other = (sim.CostModel(sim.parse(["--seed", s])) for s in ("1", "1", "2"))
    steps = [[m.step(decode(8, 100))[0] for _ in range(300)] for m in (first, again, other)]
    assert steps[0] == steps[1] != steps[2]
    mean = sum(steps[0]) / 300
    spread = (sum((s - mean) ** 2 for s in steps[0]) / 300) ** 0.5 / mean
    assert spread == pytest.approx(0.02, rel=0.2)


@given(text=st.text(max_size=200))
def test_text_counts_one_token_per_four_bytes(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    assert len(sim.text_tokens(text)) == -(-len(data) // 4)
    assert sim.text_tokens(text + "same tail") == sim.text_tokens(text + "same tail")


@given(
    st.lists(
        st.one_of(st.integers(), st.text(max_size=5), st.booleans(), st.none(), st.lists(st.integers(), max_size=3))
    )
)
def test_any_prompt_is_read_or_refused(value: list[object]) -> None:
    try:
        prompts = sim.prompts_of(value)
    except sim.HttpError:
        return  # refused with a status, which is the other way
    assert prompts
    assert all(type(t) is int for p in prompts for t in p)
