"""Result files on their way into the store: in one piece however long, once however often read, or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from runners.ingest import Feed, Ingest
from runners.nodes import jobs
from runners.nodes.link import Link, open_link
from runners.spec import Node
from store.database import Store
from store.records import Job

SAMPLE = Path(__file__).parents[2] / "data" / "clients" / "vllm_bench.json"
COPIES = 3500  # of the sample's six requests: well over the 4 MiB of one answer of the tail


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[Link]:
    found = open_link(Node(name="here", host="local", root=str(tmp_path / "node")))
    await found.up()
    yield found
    await found.close()


async def begin(link: Link, store: Store, script: str) -> Job:
    spec = jobs.JobSpec(job_id="r.a1.client", argv=["sh", "-c", script], ttl_s=60, files=("result.json",))
    status = await jobs.start(link, spec)
    context = orjson.dumps({"client": "vllm_bench", "files": {"result.json": "document"}, "isl": 64, "osl": 8}).decode()
    job = Job(
        job_id=spec.job_id,
        run_id="r",
        attempt_id="r.a1",
        node="here",
        kind="client",
        folder=status.folder or "",
        context=context,
    )
    await store.commit([job])
    return job


async def drained(feed: Feed) -> None:
    async with asyncio.timeout(60):
        await feed.drained.wait()


async def test_a_long_result_is_one_batch_and_comes_once(link: Link, tmp_path: Path) -> None:
    sample = json.loads(SAMPLE.read_text())
    six = len(sample["ttfts"])
    long = {k: v * COPIES if isinstance(v, list) and len(v) == six else v for k, v in sample.items()}
    made = tmp_path / "made.json"
    made.write_text(json.dumps(long))
    size = made.stat().st_size
    assert size > 4 << 20
    with Store.open(tmp_path / "s.duckdb") as store:
        job = await begin(link, store, f'echo a log line; cp "{made}" result.json')
        ingest = Ingest(store)
        await drained(ingest.follow(link, job))
        ingest.unfollow(job.job_id)
        await drained(ingest.follow(link, job))  # as at the end of a run: nothing comes twice
        await ingest.close()
        batches = store.query("select \"offset\", length from batches where stream = 'result.json'").rows
        counted = store.query("select count(*), count(distinct request_id), sum(output_tokens) from requests").rows
        assert batches == [(0, size)]
        assert counted == [(six * COPIES, six * COPIES, 48 * COPIES)]
        assert store.query("select text from log_lines").rows == [("a log line",)]


async def test_a_job_without_its_file_is_read_to_the_end_all_the_same(link: Link, tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        job = await begin(link, store, "echo nothing to tell")
        ingest = Ingest(store)
        await drained(ingest.follow(link, job))
        await ingest.close()
        assert store.query("select count(*) from requests").rows == [(0,)]
