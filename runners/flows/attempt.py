"""One attempt: the load client as a detached job, watched until its last byte is a row, then judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from runners.clients import loadgen
from runners.flows.life import LifeHandle
from runners.flows.outcome import Reason, decide, judge_slo, success_share
from runners.flows.services import Services
from runners.ingest import ENDED, Feed
from runners.launchers import LAUNCHERS
from runners.launchers.base import record_job
from runners.nodes import jobs
from runners.nodes.link import LinkState, NodeError
from runners.spec import Case, Slo
from store.export.document import attempt_windows
from store.queries import literal
from store.records import Attempt, Job, Phase

MARGIN_S = 120.0  # the client's own budget plus this, and it must have ended
STOP_GRACE_S = 10.0
DRAIN_LIMIT_S = 60.0
HANG_LOOK_S = 5.0


@dataclass(slots=True)
class Progress:
    """The client's count of tokens and its clock when that last moved, for the watch on hangs."""

    tokens: int | None = None
    since_ns: int = 0


class AttemptFlow:
    """Carries one attempt from planned to done. Started again after a crash it takes the running client over."""

    def __init__(self, services: Services, attempt: Attempt, handle: LifeHandle, cancel: asyncio.Event) -> None:
        self.services = services
        self.attempt = attempt
        self.handle = handle
        self.cancel = cancel
        self.case = Case.model_validate_json(attempt.case_spec or "{}")
        self.node = handle.nodes[0]
        self.reasons: list[Reason] = []

    async def run(self) -> Attempt:
        """The finished attempt, committed. NodeError only when the client could not be started at all."""
        feed = await self._start()
        await self._watch(feed)
        await self._phases_end()
        self.attempt = await asyncio.to_thread(self._judged, feed)  # seconds of SQL on a large attempt
        await self.services.store.commit([self.attempt])
        self.services.ingest.unfollow(feed.job.job_id)
        return self.attempt

    # -- start

    async def _start(self) -> Feed:
        services, attempt, node = self.services, self.attempt, self.node
        job_id = f"{attempt.attempt_id}.client"
        attempt = replace(
            attempt,
            state="running",
            life_id=self.handle.life.life_id,
            job_id=job_id,
            node=node.name,
            started_wall_ns=attempt.started_wall_ns or time.time_ns(),
        )
        script = await services.cluster.push(node.name, "loadgen.py")
        root = await services.cluster.root(node.name)
        spec = loadgen.spec_of(
            self.case, url=self.handle.url, model=self.handle.model, dep=self.handle.dep, seed=attempt.seed or 0
        )
        link = await services.cluster.link(node.name)
        spec_path = f"{root}/bin/{job_id}.json"
        await link.put(orjson.dumps(spec), spec_path, 0o600)
        ttl_s = int(self.case.budget + MARGIN_S)
        dep, env = self.handle.dep, {"PYTHONUNBUFFERED": "1", **node.env}
        argv = [script, "--spec", spec_path]
        launch = await LAUNCHERS[dep.launcher].client(link, root, job_id, ttl_s, dep, argv, env)
        job = Job(
            job_id=job_id,
            run_id=attempt.run_id,
            life_id=self.handle.life.life_id,
            attempt_id=attempt.attempt_id,
            node=node.name,
            kind="client",
            folder=f"{root}/jobs/{job_id}",
            ttl_s=ttl_s,
            started_wall_ns=time.time_ns(),
            context=orjson.dumps({"client": self.case.client, "spec": loadgen.masked(spec)}).decode(),
        )
        await record_job(services.store, job, "bench", launch.shown, launch.env)
        await services.store.commit([attempt])
        self.attempt = attempt
        await jobs.start(link, launch.job)
        return services.ingest.follow(link, job)

    # -- watch

    async def _watch(self, feed: Feed) -> None:
        """Until the client's bytes are all in, or something ends the attempt earlier."""
        started = (self.attempt.started_wall_ns or time.time_ns()) / 1e9
        deadline = started + self.case.budget + MARGIN_S
        progress = Progress()
        next_look = time.monotonic() + HANG_LOOK_S
        while not feed.drained.is_set():
            await self._changed(0.5)
            if feed.drained.is_set():
                return
            if ending := self._ending():
                await self._stop_client(feed)
                self.reasons = [
                    *self._ending(),
                    *self.reasons,
                ] or ending  # by now the causes have come in, not only echoes
                return
            if feed.status is not None and feed.status.state == "gone":
                self.reasons.append(
                    Reason("NODE_LOST", f"the load client on {self.node.name} is gone without an exit code")
                )
                await self._stop_client(feed)  # what it had started may still load the server
                return
            if time.time() > deadline and (late := await self._late(feed)):
                self.reasons.append(late)
                return
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + HANG_LOOK_S
                if self._hangs(progress):
                    limit = self.handle.dep.hang_timeout
                    self.reasons.append(
                        Reason("ENGINE_CRASH", f"hang: no token for {limit:.0f} s with requests in flight")
                    )
                    self.reasons += await self._out_of_contact()
                    await self._stop_client(feed)
                    return

    async def _changed(self, seconds: float) -> None:
        changed = self.services.ingest.changed
        try:
            async with asyncio.timeout(seconds), changed:
                await changed.wait()
        except TimeoutError:
            return

    def _ending(self) -> list[Reason]:
        reasons = self.handle.trouble()
        if self.cancel.is_set():
            reasons.append(Reason("CANCELLED", "stopped by the operator"))
        return reasons

    def _hangs(self, progress: Progress) -> bool:
        """Requests in flight and no token for the deployment's hang_timeout, by the client's own clock: a cut link or a
        full disk of ours holds its ticks up, and hangs nothing."""
        table = self.services.store.query(
            "select in_flight, output_tokens, mono_ns from load_ticks "
            f"where attempt_id = {literal(self.attempt.attempt_id)} order by mono_ns desc limit 1"
        )
        in_flight, tokens, now_ns = table.rows[0] if table.rows else (0, None, 0)
        if not in_flight or tokens is None or tokens != progress.tokens:
            progress.tokens, progress.since_ns = tokens, now_ns
            return False
        return bool((now_ns - progress.since_ns) / 1e9 > self.handle.dep.hang_timeout)

    async def _out_of_contact(self) -> list[Reason]:
        """Nodes of the server whose link is not up: the likely cause when an engine hangs."""
        links = [await self.services.cluster.link(node.name) for node in self.handle.nodes]
        return [
            Reason("NODE_LOST", f"no contact with {link.node.name} ({link.state})")
            for link in links
            if link.state is not LinkState.UP
        ]

    async def _late(self, feed: Feed) -> Reason | None:
        """The budget is over and the client not read to its end: no contact, or a client that hangs. None for one that
        has ended and whose last bytes are still to come."""
        link = await self.services.cluster.link(self.node.name)
        if link.state is not LinkState.UP:
            return Reason("NODE_LOST", f"no contact with {self.node.name} when the budget ended")
        try:  # asked, not remembered: after a resume long past the budget nothing has been told yet
            status = (await jobs.status(link, [feed.job.job_id]))[feed.job.job_id]
        except NodeError as e:
            return Reason("NODE_LOST", f"no contact with {self.node.name} when the budget ended: {e}")
        if status.state in ENDED:
            return None
        await self._stop_client(feed)
        return Reason("CLIENT_ERROR", "timeout: the load client had not ended when its budget was over")

    async def _stop_client(self, feed: Feed) -> None:
        """Ask the client to finish its lines, and read them to the last byte."""
        link = await self.services.cluster.link(self.node.name)
        try:
            await jobs.stop(link, feed.job.job_id, STOP_GRACE_S)
            async with asyncio.timeout(DRAIN_LIMIT_S):
                await feed.drained.wait()
        except (NodeError, TimeoutError) as e:
            self.reasons.append(Reason("NODE_LOST", f"the load client's last lines could not be read: {e}"))

    # -- judge

    async def _phases_end(self) -> None:
        """Close the drain phase with the client's end: its lines only say when a phase begins."""
        rows = self.services.store.query(
            f"from phases where attempt_id = {literal(self.attempt.attempt_id)} and node is not null "
            "order by start_mono_ns"
        ).dicts()
        ends = [r["start_mono_ns"] for r in rows[1:]] + [None]
        walls = [r["start_wall_ns"] for r in rows[1:]] + [time.time_ns()]
        closed = [
            replace(Phase(**row), end_mono_ns=row["end_mono_ns"] or mono, end_wall_ns=row["end_wall_ns"] or wall)
            for row, mono, wall in zip(rows, ends, walls, strict=True)
        ]
        await self.services.store.commit(closed)

    def _judged(self, feed: Feed) -> Attempt:
        windows = attempt_windows(self.services.store, self.attempt.attempt_id)
        steady = windows.get("steady") or windows.get("all") or {}
        whole = windows.get("all") or {}
        reasons = list(self.reasons)
        flags = list(loadgen.flags_of(self.services.store, self.attempt))
        if not reasons:
            reasons += self._client_reasons(feed, whole)
        slo = self._slo()
        if slo is not None:
            reasons += judge_slo(slo, steady)
        outcome, detail = decide(reasons)
        if self.handle.life.simulated:
            flags.append("simulated")
        return replace(
            self.attempt,
            state="done",
            outcome=outcome,
            detail=detail or None,
            ended_wall_ns=time.time_ns(),
            flags=flags or None,
        )

    def _client_reasons(self, feed: Feed, whole: Mapping[str, Any]) -> list[Reason]:
        code = feed.status.exit_code if feed.status else None
        if code != 0:
            said = f"the load client ended with exit code {code}; see its stderr in the logs"
            return [Reason("CLIENT_ERROR", said + loadgen.failures_of(self.services.store, self.attempt.attempt_id))]
        share = success_share(whole)
        if share is None:
            return [Reason("CLIENT_ERROR", "too few successes: no measured request ended within the budget")]
        slo = self._slo()
        need = slo.success if slo else 0.99
        if share < need:
            outcome = "SLO_EXCEEDED" if slo and share >= 0.5 else "CLIENT_ERROR"
            said = f"too few successes: {share:.1%} of the measured requests, {need:.0%} needed"
            return [Reason(outcome, said + loadgen.failures_of(self.services.store, self.attempt.attempt_id))]
        return []

    def _slo(self) -> Slo | None:
        return self.services.inventory.slo.get(self.case.slo or "")  # it may have left the configuration since
