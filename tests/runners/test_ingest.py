"""From a job's bytes to rows: every byte once, whatever ends in between; proofs that anybody can rehash."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from runners.ingest import Feed, Ingest
from runners.nodes import jobs
from runners.nodes.link import Link, open_link
from runners.spec import Node
from store.database import Store, StoreError
from store.queries import literal
from store.records import Job, Record

LINES = 3000


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[Link]:
    found = open_link(Node(name="here", host="local", root=str(tmp_path / "node")))
    await found.up()
    yield found
    await found.close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "t.duckdb")


async def _start(link: Link, store: Store, job_id: str, script: str) -> Job:
    status = await jobs.start(link, jobs.JobSpec(job_id=job_id, argv=["sh", "-c", script], ttl_s=60))
    job = Job(job_id=job_id, run_id="r", node="here", kind="server", folder=status.folder or "", rank=0)
    await store.commit([job])
    return job


async def _drained(feed: Feed) -> None:
    async with asyncio.timeout(30):
        await feed.drained.wait()


def _audit(store: Store, job: Job, stream: str = "stdout") -> bytes:
    """The job's file, after its batches were found to cover it exactly once."""
    data = (Path(job.folder) / stream).read_bytes()
    at = 0
    rows = store.query(
        f'select "offset", length, sha256 from batches where job_id = {literal(job.job_id)} '
        f'and stream = {literal(stream)} order by "offset"'
    ).rows
    for offset, length, digest in rows:
        assert offset == at
        assert hashlib.sha256(data[offset : offset + length]).hexdigest() == digest
        at += length
    assert at == len(data)
    return data


async def test_every_line_becomes_a_row_and_the_jobs_end_is_known(link: Link, store: Store) -> None:
    job = await _start(link, store, "j1", f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); done; exit 3")
    ingest = Ingest(store)
    feed = ingest.follow(link, job)
    await _drained(feed)
    await ingest.close()
    _audit(store, job)
    texts = [r[0] for r in store.query('select text from log_lines order by "offset"').rows]
    assert texts == [f"line {i}" for i in range(LINES)]
    assert store.query("select state, exit_code from jobs").rows == [("exited", 3)]


async def test_an_ingest_that_dies_is_followed_by_one_that_goes_on(link: Link, store: Store) -> None:
    script = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); [ $((i%300)) = 0 ] && sleep 0.1; done"
    job = await _start(link, store, "j2", script)
    for _ in range(4):
        ingest = Ingest(store)
        ingest.follow(link, job)
        await asyncio.sleep(0.3)
        await ingest.close()  # whatever was parsed and not committed is lost with it
    ingest = Ingest(store)
    await _drained(ingest.follow(link, job))
    await ingest.close()
    _audit(store, job)
    assert store.query("select count(*), count(distinct text) from log_lines").rows == [(LINES, LINES)]


async def test_bad_bytes_and_endless_lines_cost_no_connection(link: Link, store: Store) -> None:
    script = r"printf 'ok 1\n\377\376bad\000bytes\n'; head -c 300000 /dev/zero | tr '\000' x; printf '\nok 2'"
    job = await _start(link, store, "j3", script)
    ingest = Ingest(store)
    await _drained(ingest.follow(link, job))
    await ingest.close()
    _audit(store, job)
    rows = store.query('select text, truncated from log_lines order by "offset"').rows
    assert rows[0] == ("ok 1", False)
    assert rows[-1] == ("ok 2", False)  # a last line without newline is a line once the job has ended
    assert max(len(r[0]) for r in rows) <= 64 * 1024
    assert any(r[1] for r in rows)


async def test_fatal_lines_are_told_at_once_and_found_again_by_the_next_owner(link: Link, store: Store) -> None:
    fatal = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    job = await _start(link, store, "j4", f"echo fine; sleep 1; echo '{fatal}'; sleep 20")
    ingest = Ingest(store)
    feed = ingest.follow(link, job)
    begun = time.monotonic()
    async with asyncio.timeout(10), ingest.changed:
        await ingest.changed.wait_for(lambda: bool(feed.fatal))
    assert time.monotonic() - begun < 1 + 2  # said after a second, seen within two
    assert [e.name for e in feed.fatal] == ["oom"]
    await ingest.close()
    again = Ingest(store)
    assert [e.name for e in again.follow(link, job).fatal] == ["oom"]
    await again.close()
    await jobs.stop(link, "j4", 1)


def _files(folder: Path) -> bytes:
    found = sorted(folder.glob("t.duckdb*"))
    assert found
    return b"".join(p.read_bytes() for p in found if p.is_file())


async def test_secrets_in_a_log_never_reach_the_store(link: Link, store: Store, tmp_path: Path) -> None:
    secret = "hf_plantedPlantedPlanted1234"
    job = await _start(link, store, "j5", f"echo \"Namespace(api_key='{secret}x', hf_token={secret})\"")
    ingest = Ingest(store)
    await _drained(ingest.follow(link, job))
    await ingest.close()
    store.close()
    assert secret.encode() not in _files(tmp_path)


async def test_a_node_whose_entry_has_changed_is_read_on_over_its_new_link(link: Link, store: Store) -> None:
    job = await _start(link, store, "j8", "echo one; sleep 3; echo two")
    ingest = Ingest(store)
    feed = ingest.follow(link, job)
    while not feed.offsets.get("stdout"):  # noqa: ASYNC110 - the offset has no event of its own
        await asyncio.sleep(0.05)
    await link.close()
    renewed = open_link(link.node)
    other = await _start(renewed, store, "j9", "echo three")
    await _drained(ingest.follow(renewed, other))
    await _drained(feed)
    await ingest.close()
    await renewed.close()
    assert (_audit(store, job), _audit(store, other)) == (b"one\ntwo\n", b"three\n")


async def test_the_end_of_a_job_is_not_lost_when_the_store_refuses_it_at_first(
    link: Link, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await _start(link, store, "j10", "exit 0")
    while (await jobs.status(link, ["j10"]))["j10"].state != "exited":  # noqa: ASYNC110 - the node's job
        await asyncio.sleep(0.05)
    real, refused = store.commit, 0

    async def full(records: Sequence[Record]) -> None:
        nonlocal refused
        refused += 1
        if refused <= 2:
            raise StoreError("the disk is full")
        await real(records)

    monkeypatch.setattr(store, "commit", full)
    ingest = Ingest(store)
    await _drained(ingest.follow(link, job))
    await ingest.close()
    assert refused > 2
    assert store.query("select state, exit_code from jobs").rows == [("exited", 0)]
