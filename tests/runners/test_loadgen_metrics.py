"""The store's SQL and the independent recomputation agree on what loadgen wrote, as far as floats can."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from runners.clients.loadgen import LoadgenReader
from runners.probes.base import ProbeContext
from store.database import Store
from tests.runners.loadgen_rig import Stream, against, counts
from tests.runners.recompute import read, windows

SAMPLE = Path(__file__).parents[1] / "data" / "loadgen" / "closed_c2.jsonl"
CONTEXT = ProbeContext(run_id="r1", node="n1", job_id="r1.a1.client", attempt_id="r1.a1")
STATISTICS = ("n", "mean", "p50", "p95", "p99")


async def by_sql(raw: bytes, folder: Path) -> dict[str, dict[str, Any]]:
    """The windows as the named query gives them, in the shape of the recomputation."""
    store = Store.open(folder / "x.duckdb")
    try:
        await store.commit(LoadgenReader().parse(raw, CONTEXT, True).records)
        rows = store.query("from attempt_metrics('r1.a1')").dicts()
    finally:
        store.close()
    return {
        row["window"]: {
            "requests": {status: row[status] for status in ("ok", "failed", "timed_out", "cut")},
            "tokens": {"input": row["input_tokens"], "output": row["output_tokens"]},
            **{key: row[key] for key in ("duration_s", "input_tps", "output_tps", "total_tps", "request_rate")},
            **{
                metric: {name: row[f"{metric}_{name}"] for name in STATISTICS}
                for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")
            },
        }
        for row in rows
    }


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, dict):
        return all(same(ours[key], theirs[key]) for key in ours)
    return bool(theirs == pytest.approx(ours, rel=1e-9)) if ours is not None else theirs is None


async def agree(raw: bytes, folder: Path) -> dict[str, dict[str, Any]]:
    told = await by_sql(raw, folder)
    for name, figures in windows(read(raw)).items():
        if figures is None:
            assert told[name]["duration_s"] is None
        else:
            assert {key: value for key, value in figures.items() if not same(value, told[name][key])} == {}
    return told


async def test_on_a_real_server(tmp_path: Path) -> None:
    told = await agree(SAMPLE.read_bytes(), tmp_path)
    assert told["steady"]["ttft_ms"]["n"] == 20


async def test_with_failures_bundles_and_chunks_of_unknown_size(tmp_path: Path) -> None:
    async def behave(stream: Stream) -> None:
        if stream.number % 5 == 3:
            await stream.refuse(503, "busy")
            return
        await stream.begin()
        await stream.tokens(5, usage=stream.number % 2 == 0, pause=0.003 * (1 + stream.number % 3))
        if stream.number % 7 == 6:
            stream.drop()
        await asyncio.sleep(0.002)
        await stream.end(counts(8, 9))

    output = await against(behave, concurrency=3, requests=30, osl=9)
    assert output.end["measured"]["failed"] > 3
    await agree(output.raw, tmp_path)


async def test_without_a_steady_window(tmp_path: Path) -> None:
    async def behave(stream: Stream) -> None:
        await stream.answer()

    output = await against(behave, concurrency=2, requests=6, filler=False)
    told = await agree(output.raw, tmp_path)
    assert told["steady"]["ttft_ms"]["p50"] is None


async def test_changing_one_raw_line_changes_the_store_too(tmp_path: Path) -> None:
    lines = read(SAMPLE.read_bytes())
    victim = next(line for line in lines if line["t"] == "done" and line["measured"] and line["phase"] == "steady")
    victim["first_ns"] += 3_000_000
    (tmp_path / "b").mkdir()
    before = await by_sql(SAMPLE.read_bytes(), tmp_path)
    after = await agree("\n".join(map(json.dumps, lines)).encode() + b"\n", tmp_path / "b")
    assert before["steady"]["ttft_ms"]["mean"] != after["steady"]["ttft_ms"]["mean"]
