"""From job files to rows: tail, parse, commit. Offsets and rows share one transaction, so nothing is lost or doubled.

A chunk of bytes goes to the parser of its job; what the parser consumed (whole lines or frames) is committed together
with the new offset and a `batches` row that proves it (offset, length, sha256). The next chunk starts there.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import orjson

from runners.clients.base import DOCUMENT, LINES
from runners.clients.results import MAX_FILE
from runners.nodes.jobs import JobStatus
from runners.nodes.link import Link
from runners.nodes.tail import Chunk, Tailer
from runners.probes.base import ProbeContext, Reader
from runners.readers import files_of, reader_of
from store.database import Store, StoreError
from store.masking import mask_text
from store.queries import literal
from store.records import Batch, Job, LogEvent, LogLine, Offset, Record, Request

log = logging.getLogger("twinrail.ingest")

STREAMS = ("stdout", "stderr")
ENDED = ("exited", "gone", "unknown")  # nothing more will be written
BIG_CHUNK = 64 * 1024  # below this a parse is over faster than a hop to a thread


@dataclass(slots=True)
class Feed:
    """One followed job as the flows see it. `drained` is set when the job has ended and all its bytes are rows."""

    job: Job
    context: ProbeContext
    status: JobStatus | None = None
    fatal: list[LogEvent] = field(default_factory=list)
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    open_streams: set[str] = field(default_factory=lambda: set(STREAMS))
    offsets: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # further streams, see readers.files_of
    waiting: set[str] = field(default_factory=set)  # those to be read in one piece, until the job has ended


class Ingest:
    """One tailer a node, one pump a tailer. `changed` is notified after every commit and every job state change."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.feeds: dict[str, Feed] = {}
        self.changed = asyncio.Condition()
        self._tailers: dict[str, Tailer] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._taking: set[asyncio.Task[None]] = set()

    def follow(self, link: Link, job: Job) -> Feed:
        """Tail a job from the last committed offset on. Following it twice gives the same feed."""
        if job.job_id in self.feeds:
            return self.feeds[job.job_id]
        feed = Feed(job, context_of(job), offsets=self._committed(job.job_id))
        feed.fatal = self._known_fatal(job.job_id)
        self.feeds[job.job_id] = feed
        feed.files = files_of(job)
        feed.open_streams |= feed.files.keys()
        feed.waiting = {stream for stream, kind in feed.files.items() if kind == DOCUMENT}
        tailer = self._tailer(link)
        for stream in feed.open_streams - feed.waiting:
            _read_on(tailer, feed, stream)
        return feed

    async def also(self, link: Link, job_id: str, streams: Iterable[str]) -> None:
        """Follow further files that a followed job has begun; its row says so, for whoever follows it next."""
        feed = self.feeds.get(job_id)
        new = [s for s in streams if feed is not None and s not in feed.files and not feed.drained.is_set()]
        if feed is None or not new:
            return
        feed.files |= dict.fromkeys(new, LINES)
        feed.open_streams |= set(new)
        known = orjson.loads(feed.job.context) if feed.job.context else {}
        feed.job = replace(feed.job, context=orjson.dumps({**known, "files": feed.files}).decode())
        await self.store.commit([feed.job])
        for stream in new:
            _read_on(self._tailer(link), feed, stream)

    def unfollow(self, job_id: str) -> None:
        """Stop tailing; what is committed stays, and `follow` would go on from there."""
        feed = self.feeds.pop(job_id, None)
        if feed and (tailer := self._tailers.get(feed.job.node)):
            for stream in feed.open_streams:
                tailer.unfollow(job_id, stream)

    async def close(self) -> None:
        """End all pumps. Rows not yet committed are read again next time."""
        for pump in self._pumps.values():
            pump.cancel()
        await asyncio.gather(*self._pumps.values(), *self._taking, return_exceptions=True)
        for tailer in self._tailers.values():
            tailer.close()
        self._pumps.clear()
        self._tailers.clear()

    def _tailer(self, link: Link) -> Tailer:
        name = link.node.name
        if name in self._tailers and self._tailers[name].link is link:
            return self._tailers[name]
        if name in self._tailers:
            self._tailers[name].close()
        tailer = self._tailers[name] = Tailer(link)
        self._pumps[name] = asyncio.create_task(self._pump(tailer, self._pumps.get(name)), name=f"pump {name}")
        return tailer

    async def _pump(self, tailer: Tailer, before: asyncio.Task[None] | None) -> None:
        if before is not None:  # the node's entry in the configuration has changed: what is followed moves over
            await asyncio.wait([before])
            for f in self.feeds.values():
                for stream in f.open_streams - f.waiting if f.job.node == tailer.link.node.name else ():
                    _read_on(tailer, f, stream)
        async for chunk in tailer:
            feed = self.feeds.get(chunk.job_id)
            if feed is None:
                continue
            taking = asyncio.create_task(self._take(tailer, feed, chunk))
            self._taking.add(taking)
            taking.add_done_callback(self._taking.discard)
            try:
                await asyncio.shield(
                    taking
                )  # a commit that has begun cannot be taken back: it is waited for in `close`
            except StoreError as e:  # disk full and the like: the bytes stay on the node and are read again
                log.error("cannot store %s/%s at %d: %s", chunk.job_id, chunk.stream, chunk.offset, e)  # noqa: TRY400
                await asyncio.sleep(1.0)
                # Told again, also when there were no bytes: the end of a job is told once, and must not get lost.
                if chunk.job_id in self.feeds:
                    _read_on(tailer, feed, chunk.stream)
            async with self.changed:
                self.changed.notify_all()

    async def _take(self, tailer: Tailer, feed: Feed, chunk: Chunk) -> None:
        """Parse and commit one chunk, then move the offset on."""
        if chunk.job is not None:
            await self._note_status(feed, chunk.job)
        ended = feed.status is not None and feed.status.state in ENDED
        final = ended and chunk.offset + len(chunk.data) >= chunk.size
        while ended and feed.waiting:
            _read_on(tailer, feed, feed.waiting.pop())
        if chunk.data:
            reader = reader_of(feed.job, chunk.stream)
            context = replace(feed.context, stream=chunk.stream, offset=chunk.offset, wall_ns=time.time_ns())
            consumed = await self._commit(reader, feed, chunk, context, final)
            tailer.advance(chunk.job_id, chunk.stream, chunk.offset + consumed)
            feed.offsets[chunk.stream] = chunk.offset + consumed
        if final and feed.offsets.get(chunk.stream, 0) >= chunk.size:
            feed.open_streams.discard(chunk.stream)
            tailer.unfollow(chunk.job_id, chunk.stream)
            if not feed.open_streams:
                feed.drained.set()

    async def _commit(self, reader: Reader, feed: Feed, chunk: Chunk, context: ProbeContext, final: bool) -> int:
        if len(chunk.data) > BIG_CHUNK:
            parsed = await asyncio.to_thread(reader.parse, chunk.data, context, final)
        else:
            parsed = reader.parse(chunk.data, context, final)
        if not parsed.consumed:
            return 0
        end = chunk.offset + parsed.consumed
        rows = [_masked(r) for r in parsed.records]
        proof = Batch(
            job_id=chunk.job_id,
            stream=chunk.stream,
            offset=chunk.offset,
            length=parsed.consumed,
            sha256=hashlib.sha256(chunk.data[: parsed.consumed]).hexdigest(),
            rows=len(rows),
            skipped=parsed.skipped,
            wall_ns=context.wall_ns,
        )
        await self.store.commit([*rows, Offset(job_id=chunk.job_id, stream=chunk.stream, offset=end), proof])
        feed.fatal += [r for r in rows if isinstance(r, LogEvent) and r.severity == "fatal"]
        return parsed.consumed

    async def _note_status(self, feed: Feed, status: JobStatus) -> None:
        """Keep the job's row as the node tells it; written only when it changes."""
        first, feed.status = feed.status is None, status
        if not first and (feed.job.state, feed.job.exit_code) == (status.state, status.exit_code):
            return
        job = replace(
            feed.job,
            state=status.state,
            exit_code=status.exit_code,
            pid=status.pid,
            start_ticks=status.start_ticks,
            boot_id=status.boot_id,
            started_wall_ns=status.started_wall_ns or feed.job.started_wall_ns,
            ended_wall_ns=status.ended_wall_ns,
        )
        await self.store.commit([job])
        feed.job = job

    def _committed(self, job_id: str) -> dict[str, int]:
        table = self.store.query(f'select stream, "offset" from offsets where job_id = {literal(job_id)}')
        return {str(stream): int(offset) for stream, offset in table.rows}

    def _known_fatal(self, job_id: str) -> list[LogEvent]:
        table = self.store.query(f"from log_events where job_id = {literal(job_id)} and severity = 'fatal'")
        return [LogEvent(**row) for row in table.dicts()]


def _read_on(tailer: Tailer, feed: Feed, stream: str) -> None:
    """Tail a stream from its last committed offset on."""
    most = MAX_FILE if feed.files.get(stream) == DOCUMENT else None
    tailer.follow(feed.job.job_id, stream, feed.offsets.get(stream, 0), most)


def context_of(job: Job) -> ProbeContext:
    """What a job's parser needs to know beyond the bytes, from the job's own row."""
    known = orjson.loads(job.context) if job.context else {}
    return ProbeContext(
        run_id=job.run_id,
        node=job.node,
        job_id=job.job_id,
        life_id=job.life_id,
        attempt_id=job.attempt_id,
        rank=job.rank,
        engine=known.get("engine"),
        utc_offset_s=known.get("utc_offset_s"),
    )


def _masked(record: Record) -> Record:
    """Logs and answers are somebody else's text: secrets in them stay out of the store."""
    if isinstance(record, LogLine):
        text = mask_text(record.text)
        return record if text is record.text else replace(record, text=text)
    if isinstance(record, LogEvent) and record.detail:
        return replace(record, detail=mask_text(record.detail))
    if isinstance(record, Request) and record.error_text:
        return replace(record, error_text=mask_text(record.error_text))
    return record
