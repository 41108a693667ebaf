"""One attempt: the load client as a detached job, watched until its last byte is a row, then judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from runners.clients import client_of, loadgen
from runners.clients.base import Ask, AskError, ClientCommand
from runners.flows import baseline, client_tool
from runners.flows.client_tool import ToolError
from runners.flows.life import LifeHandle
from runners.flows.outcome import Reason, decide, judge_slo, success_share
from runners.flows.services import Services
from runners.flows.wishes import Wishes
from runners.ingest import ENDED, Feed
from runners.launchers import LAUNCHERS
from runners.launchers.base import record_job
from runners.nodes import jobs
from runners.nodes.clock import measure
from runners.nodes.link import Link, LinkState, NodeError
from runners.spec import Case, ClientTool, Slo
from store.export.document import attempt_windows
from store.queries import literal
from store.records import Attempt, Job, Phase, Variable

MARGIN_S = 120.0  # the client's own budget plus this, and it must have ended
STOP_GRACE_S = 10.0
DRAIN_LIMIT_S = 60.0
HANG_LOOK_S = 5.0


@dataclass(slots=True)
class Progress:
    """The client's count of tokens and its clock when that last moved, for the watch on hangs."""

    tokens: float | None = None
    since_ns: int = 0


class AttemptFlow:
    """Carries one attempt from planned to done. Started again after a crash it takes the running client over."""

    def __init__(
        self,
        services: Services,
        attempt: Attempt,
        handle: LifeHandle,
        cancel: asyncio.Event,
        wishes: Wishes | None = None,
    ) -> None:
        self.services = services
        self.attempt = attempt
        self.handle = handle
        self.cancel = cancel
        self.wishes = wishes
        self.case = Case.model_validate_json(attempt.case_spec or "{}")
        self.node = handle.nodes[0]
        self.client = client_of(self.case.client)
        self.tool = services.inventory.clients.get(self.case.client) or ClientTool()
        self.reasons: list[Reason] = []
        self.flags: list[str] = []

    async def run(self) -> Attempt:
        """The finished attempt, committed. NodeError only when the client could not be started at all."""
        try:
            feed = await self._start()
        except (AskError, ToolError) as e:  # nothing of the client is on the node
            return await self._refused(str(e))
        await self._watch(feed)
        await self._phases_end()
        self.attempt = await asyncio.to_thread(self._judged, feed)  # seconds of SQL on a large attempt
        await self.services.store.commit([self.attempt])
        self.services.ingest.unfollow(feed.job.job_id)
        return self.attempt

    async def _refused(self, why: str) -> Attempt:
        begun, now = self.attempt.started_wall_ns, time.time_ns()
        self.attempt = replace(
            self.attempt,
            state="done",
            outcome="CLIENT_ERROR",
            detail=why,
            started_wall_ns=begun or now,
            ended_wall_ns=now,
            flags=["simulated"] if self.handle.life.simulated else None,
        )
        await self.services.store.commit([self.attempt])
        return self.attempt

    # -- start

    async def _start(self) -> Feed:
        """The client's job started, or found again. Raises AskError, ToolError, NodeError."""
        services, node = self.services, self.node
        job_id = f"{self.attempt.attempt_id}.client"
        attempt = replace(
            self.attempt,
            state="running",
            life_id=self.handle.life.life_id,
            job_id=job_id,
            node=node.name,
            started_wall_ns=self.attempt.started_wall_ns or time.time_ns(),
        )
        link = await services.cluster.link(node.name)
        root = await services.cluster.root(node.name)
        known = self._known_job(job_id)
        command = self.client.command(await self._ask(root, job_id))
        dep = client_tool.with_tool(self.handle.dep, self.tool)
        if known is None:
            look = await client_tool.look(services, node, dep, self.client, command)
            facts = [] if look is None else [self._fact("version", look.version)]
            if look is not None and not look.tried:
                self.flags.append("client_version_untried")
            await services.store.commit(facts)
        for path, content in command.put.items():
            await link.put(content, path, 0o600)
        ttl_s = int(self.case.budget + MARGIN_S)
        env = {"PYTHONUNBUFFERED": "1", **node.env, **command.env}
        launch = await LAUNCHERS[dep.launcher].client(link, root, job_id, ttl_s, dep, command.argv, env)
        job = known or Job(
            job_id=job_id,
            run_id=attempt.run_id,
            life_id=self.handle.life.life_id,
            attempt_id=attempt.attempt_id,
            node=node.name,
            kind="client",
            folder=f"{root}/jobs/{job_id}",
            ttl_s=ttl_s,
            started_wall_ns=time.time_ns(),
            context=orjson.dumps(await self._context(link, command)).decode(),
        )
        await record_job(services.store, job, "bench", launch.shown, launch.env)
        # A tool tells no phases: all that it does is one, on the owner's clock.
        told = self.client.module is None or known is not None
        load = Phase(attempt_id=attempt.attempt_id, run_id=attempt.run_id, name="load", start_wall_ns=time.time_ns())
        await services.store.commit([attempt] if told else [attempt, load])
        self.attempt = attempt
        await jobs.start(link, replace(launch.job, files=tuple(command.files)))
        return services.ingest.follow(link, job)

    def _known_job(self, job_id: str) -> Job | None:
        """The job as an earlier owner made it known; it may run, have ended, or never have begun."""
        rows = self.services.store.query(f"from jobs where job_id = {literal(job_id)}").dicts()
        return Job(**rows[0]) if rows else None

    async def _ask(self, root: str, job_id: str) -> Ask:
        cluster, node = self.services.cluster, self.node
        return Ask(
            case=self.case,
            url=self.handle.url,
            model=self.handle.model,
            dep=self.handle.dep,
            seed=self.attempt.seed or 0,
            folder=f"{root}/jobs/{job_id}",
            input=f"{root}/bin/{job_id}.json",
            tool=self.tool,
            payloads={script: await cluster.push(node.name, script) for script in self.client.payloads},
        )

    async def _context(self, link: Link, command: ClientCommand) -> dict[str, Any]:
        """What the readers of the job need to know; the clocks only for files, whose times are the tool's own."""
        known: dict[str, Any] = {"client": self.client.name, **command.known}
        if command.files:
            reading = await measure(link)
            wall = time.time_ns() + reading.offset_ns
            mono = None if reading.mono_offset_ns is None else time.monotonic_ns() + reading.mono_offset_ns
            known["files"] = command.files
            known["clock"] = {
                "wall_minus_mono_ns": 0 if mono is None else wall - mono,
                "wall_minus_owner_ns": reading.offset_ns,
            }
        return known

    def _fact(self, name: str, value: str) -> Variable:
        return Variable(
            run_id=self.attempt.run_id,
            life_id=self.handle.life.life_id,
            name=f"client.{self.client.name}.{name}",
            value=value,
            node=self.node.name,
            source="reported",
            wall_ns=time.time_ns(),
        )

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
        if self.wishes and (skipped := self.wishes.skipped(self.attempt.attempt_id)):
            reasons.append(Reason("CANCELLED", skipped))
        return reasons

    def _hangs(self, progress: Progress) -> bool:
        """Requests in flight and no token for the deployment's hang_timeout, by the client's own clock: a cut link or a
        full disk of ours holds its ticks up, and hangs nothing. Tools tell nothing while they run: the engine does."""
        if self.client.module is None:
            seen = (
                "select in_flight, output_tokens, mono_ns from load_ticks "
                f"where attempt_id = {literal(self.attempt.attempt_id)} order by mono_ns desc limit 1"
            )
        else:
            seen = f"""
                select coalesce(sum(running), 0), sum(generation_tokens_total + prompt_tokens_total), max(wall_ns)
                from (from engine_samples where life_id = {literal(self.handle.life.life_id)} and source = 'metrics'
                      qualify row_number() over (partition by dp_rank order by wall_ns desc) = 1)
            """
        table = self.services.store.query(seen)
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
        """Close the last phase with the client's end: its lines only say when a phase begins."""
        rows = self.services.store.query(
            f"from phases where attempt_id = {literal(self.attempt.attempt_id)} "
            "and (node is not null or name = 'load') order by start_mono_ns"
        ).dicts()
        if not rows:  # ended before its first line
            return
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
        store = self.services.store
        flags = [*(self.attempt.flags or []), *self.flags, *self.client.flags_of(store, self.attempt)]
        flags += baseline.flags_of(store, self.attempt, self.case, self.handle)
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
            flags=list(dict.fromkeys(flags)) or None,
        )

    def _client_reasons(self, feed: Feed, whole: Mapping[str, Any]) -> list[Reason]:
        store, attempt = self.services.store, self.attempt
        code = feed.status.exit_code if feed.status else None
        if code != 0:
            said = f"the load client ended with exit code {code}{self._last_word(feed)}"
            return [Reason("CLIENT_ERROR", said + loadgen.failures_of(store, attempt.attempt_id))]
        if refused := self.client.refusal_of(store, attempt):
            return [Reason("CLIENT_ERROR", refused + loadgen.failures_of(store, attempt.attempt_id))]
        share = success_share(whole)
        if share is None:
            return [Reason("CLIENT_ERROR", "too few successes: no measured request ended within the budget")]
        slo = self._slo()
        need = slo.success if slo else 0.99
        if share < need:
            outcome = "SLO_EXCEEDED" if slo and share >= 0.5 else "CLIENT_ERROR"
            said = f"too few successes: {share:.1%} of the measured requests, {need:.0%} needed"
            return [Reason(outcome, said + loadgen.failures_of(store, attempt.attempt_id))]
        return []

    def _last_word(self, feed: Feed) -> str:
        """The last line of the client's stderr, else what to look at."""
        rows = self.services.store.query(
            f"select text from log_lines where job_id = {literal(feed.job.job_id)} and stream = 'stderr' "
            "and trim(text) <> '' order by \"offset\" desc limit 1"
        ).rows
        return f"; its last words: {rows[0][0][:300]}" if rows else "; it said nothing on stderr"

    def _slo(self) -> Slo | None:
        return self.services.inventory.slo.get(self.case.slo or "")  # it may have left the configuration since
