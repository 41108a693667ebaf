"""A run: check, probes, then every attempt in order on a living server; collect, export, clean up whatever happens.

Everything is idempotent and driven by what the store and the nodes say, so `resume` is the same code: done attempts are
skipped, a client that still runs is taken over, a broken attempt is repeated under a new id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from dataclasses import replace
from typing import Any

import orjson

from runners.flows import check, gate, manifest
from runners.flows.attempt import AttemptFlow
from runners.flows.collect import collect
from runners.flows.life import LifeFailedError, LifeHandle, Lives
from runners.flows.outcome import DIRTY, WAITING, Reason
from runners.flows.services import Services
from runners.flows.steadiness import more_repeats
from runners.flows.telemetry import Telemetry
from runners.flows.variants import deployment_of
from runners.flows.wishes import Wishes
from runners.flows.work import context_of, fitted
from runners.gates.preflight.base import Seen
from runners.nodes import jobs, lock
from runners.nodes.link import NodeError
from runners.spec import Case, ConfigError, Deployment
from store.errors import ResultsError
from store.queries import call, literal
from store.records import SERVED, Attempt, Job, Note, Phase, Run

log = logging.getLogger("twinrail.run")

KEEP_ALIVE_S = 60.0
TTL_S = 1800


class RunFlow:
    """Carries one run from planned to done."""

    def __init__(self, services: Services, lives: Lives, run: Run, dep: Deployment) -> None:
        self.services = services
        self.lives = lives
        self.row = replace(run, detail=(run.detail or "").partition(WAITING)[0] or None)
        self.dep = dep
        options = orjson.loads(run.spec) if run.spec else {}
        self.keep = bool(options.get("keep"))
        self.gate_override: str | None = options.get("gate_override")
        self.max_repeats: int | None = options.get("max_repeats")
        self.cool_down: float | None = options.get("cool_down")
        self.budget: float | None = options.get("budget")
        self.fresh = bool(options.get("fresh"))
        self.cancel = asyncio.Event()
        self.wishes = Wishes(services.store, run.run_id)
        self.deps = self._deployments()
        self.nodes = list({n.name: n for d in self.deps for n in services.inventory.nodes_of(d)}.values())
        self.telemetry = Telemetry(services, run.run_id, dep, self.nodes)
        self._locked: list[str] = []
        self._seen: dict[str, Seen] = {}  # what the nodes told the preflight, for the manifest
        self._helpers: list[asyncio.Task[None]] = []  # for as long as there is work on the nodes
        self._proven: LifeHandle | None = None  # the server that carried the last attempt well, a moment ago

    def _deployments(self) -> list[Deployment]:
        """What the run starts: its own deployment and those of its attempts' variants. Raises ConfigError."""
        rows = self.services.store.query(
            f"select distinct variant from attempts where run_id = {literal(self.row.run_id)} and variant is not null"
        ).rows
        named = {orjson.loads(v)["deployment"] for (v,) in rows} - {self.dep.name}
        return [self.dep, *(self.services.inventory.deployment(n) for n in sorted(named))]

    async def run(self) -> Run:
        """The finished run. Never raises for what happens on nodes: that becomes its outcome."""
        self._helpers = [asyncio.create_task(self._keep_jobs())]
        try:
            if self.row.state != "collecting":
                outcome, detail = await self._outcome()
                await self._close_attempts(outcome, detail)
                await self._state("collecting", outcome=outcome, detail=detail or None)
            await self._clean_up()
        finally:
            for helper in self._helpers:
                helper.cancel()
        try:
            await collect(self.services, self.row)
        except ResultsError as e:
            if not self.cancel.is_set():  # an operator may make room, or not want to wait for that
                raise
            said = f"{self.row.detail or ''}; results not written: {e}".removeprefix("; ")
            self.row = replace(self.row, detail=said)
        await self._state("done", ended_wall_ns=time.time_ns())
        return self.row

    async def give_up(self, detail: str) -> None:
        """End a run that a defect of ours has broken: servers and probes stopped, every attempt with its reason."""
        try:
            await self._close_attempts("CLIENT_ERROR", detail)
            await self._clean_up()
        finally:  # the sweeper stops what is left
            await self._state("done", outcome="CLIENT_ERROR", detail=detail, ended_wall_ns=time.time_ns())

    async def call_off(self, detail: str) -> None:
        """End a run before it has begun: nothing of it is on any node."""
        await self._close_attempts("CANCELLED", detail)
        await self._state("done", outcome="CANCELLED", detail=detail, ended_wall_ns=time.time_ns())

    async def waits(self, why: str) -> None:
        """Say in the run's row why it does not go on, until its next state says otherwise. Raises StoreError."""
        await self.services.store.commit([replace(self.row, detail=f"{self.row.detail or ''}{WAITING}{why}")])

    async def _outcome(self) -> tuple[str, str]:
        try:
            return await self._work()
        except NodeError as e:
            return "START_FAILED", str(e)

    async def _state(self, state: str, **changes: Any) -> None:
        self.row = replace(self.row, state=state, **changes)
        await self.services.store.commit([self.row])

    # -- work

    async def _work(self) -> tuple[str, str]:
        if refused := await self._prepare():
            return refused
        return await self._attempts()

    async def _prepare(self) -> tuple[str, str] | None:
        """Check, locks, facts of the nodes, probes. The reason when the run may not begin."""
        services, run = self.services, self.row
        for node in self.nodes:
            services.cluster.forget(node.name)  # somebody may have cleared the folder since the last run
        if refused := await self._check():
            return refused
        await self._lock_nodes()
        self.row = replace(run, state="running", clock_node=self.nodes[0].name)
        facts = [*manifest.asked(run.run_id, self.dep, self.nodes)]
        facts += manifest.of_seen(run.run_id, self._seen, self.dep)
        known = services.store.query(f"select 1 from variables where run_id = {literal(run.run_id)} limit 1").rows
        await services.store.commit([self.row] if known else [self.row, *facts])
        for node in self.nodes:
            self._helpers.append(asyncio.create_task(services.cluster.watch_clock(node.name, run.run_id)))
        await self.telemetry.start()
        self._helpers.append(asyncio.create_task(self.telemetry.background()))
        return None

    async def _attempts(self) -> tuple[str, str]:
        """Every open attempt in order; the first outcome that was not OK, or OK."""
        worst = ("OK", "")
        rested = True
        while todo := await self._open_attempts() or await self._more_repeats():
            for attempt in todo:
                if not rested:
                    await self._rest()
                rested = False
                if self.cancel.is_set():
                    return "CANCELLED", "stopped by the operator"
                if self._over_budget():
                    return "CANCELLED", f"the plan's budget of {self.budget:.0f} s is over"
                done = await self._attempt(attempt)
                if done.outcome != "OK" and worst[0] == "OK":
                    said = f"{done.case_name} repeat {done.repeat}: {done.detail or ''}"
                    worst = (done.outcome or "CLIENT_ERROR", said)
                if done.outcome in ("START_FAILED", "GATE_FAILED"):
                    return worst  # the next attempt would meet the same wall
        return worst

    async def _rest(self) -> None:
        """The plan's cool-down, unless the operator stops the run meanwhile."""
        if self.cool_down:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.cancel.wait(), self.cool_down)

    def _over_budget(self) -> bool:
        return self.budget is not None and time.time_ns() - self.row.created_wall_ns > self.budget * 1e9

    async def _more_repeats(self) -> list[Attempt]:
        """Further attempts, journalled, of the cases whose repeats do not agree; none once each had its most."""
        if self.max_repeats is None:
            return []
        store, run_id = self.services.store, self.row.run_id
        rows = store.query(f"from attempts where run_id = {literal(run_id)} and state <> 'void'").dicts()
        spreads = await asyncio.to_thread(lambda: store.query(call("run_spread", run_id)).dicts())
        more = more_repeats(spreads, [Attempt(**row) for row in rows], self.max_repeats)
        await store.commit(more)
        return more

    async def _check(self) -> tuple[str, str] | None:
        """Preflight verdicts into the store; the first failure refuses the run. A resumed run is not refused."""
        found = await check.inspect(self.services, self.dep, self.row.run_id)
        gates, self._seen = found.gates, found.seen
        await self.services.store.commit(gates)
        failed = [g for g in gates if g.status == "fail"]
        if failed and self.row.state == "planned":
            said = "; ".join(f"{g.node} {g.name}: {(g.detail or '').rstrip('.')}. Next: {g.fix}" for g in failed)
            return "START_FAILED", f"check: {said}"
        return None

    async def _lock_nodes(self) -> None:
        for node in self.nodes:
            link = await self.services.cluster.link(node.name)
            await lock.acquire(link, self.row.run_id, TTL_S)
            self._locked.append(node.name)

    async def _attempt(self, attempt: Attempt) -> Attempt:
        """Server first, then the client. A server that does not come up ends the attempt typed."""
        if called_off := await self._called_off(attempt):
            return called_off
        begun = time.time_ns()
        try:
            handle = await self._server(attempt, begun)
        except LifeFailedError as e:
            return await self._failed(attempt, e.outcome, e.detail)
        except (NodeError, ConfigError) as e:
            return await self._failed(attempt, "START_FAILED", str(e))
        attempt = await self._fitted(attempt, handle)
        try:
            done = await AttemptFlow(self.services, attempt, handle, self.cancel, self.wishes).run()
        except NodeError as e:
            done = await self._failed(attempt, "NODE_LOST" if e.kind == "lost" else "START_FAILED", str(e))
        await self.telemetry.bracket(handle)
        late = await asyncio.to_thread(gate.late_evidence, self.services, handle, self.gate_override)
        if late and done.outcome not in DIRTY:
            done = replace(done, outcome="GATE_FAILED", detail=f"{late}; {done.outcome}: {done.detail or ''}")
            await self.services.store.commit([done])
        marks = ["gate_override"] if self.gate_override else []
        marks += ["isl_reduced"] if "isl_reduced" in (attempt.flags or []) else []
        if marks:
            done = replace(done, flags=[*(done.flags or []), *marks])
            await self.services.store.commit([done])
        per_repeat = Case.model_validate_json(attempt.case_spec or "{}").lives == "per_repeat"
        if done.outcome in DIRTY or handle.trouble():
            await self.lives.stop(handle, done.outcome or "ENGINE_CRASH", done.detail or "")
        elif per_repeat and not handle.life.external:
            await self.lives.stop(handle, "OK", "the case asks for independent lives")
        self._proven = handle if done.outcome in SERVED else None
        return done

    async def _called_off(self, attempt: Attempt) -> Attempt | None:
        """Wait for the end of a pause. The attempt, ended, when it is skipped or the run was stopped meanwhile."""
        if attempt.state != "planned":
            return None  # its client is on: it is taken over
        if who := self.wishes.paused_by:
            await self.waits(f"paused by {who}; `twinrail resume {self.row.run_id}` goes on")
            await self.wishes.go_on(self.cancel)
            await self._state(self.row.state)
        why = "stopped by the operator" if self.cancel.is_set() else self.wishes.skipped(attempt.attempt_id)
        return await self._failed(attempt, "CANCELLED", why) if why else None

    async def _server(self, attempt: Attempt, begun: int) -> LifeHandle:
        """A ready server, its probes followed, its gate passed. One that has just served well is not asked again."""
        proven, dep = self._proven, deployment_of(self.services.inventory, attempt, self.dep)
        alive = proven is not None and self.lives.handles.get(dep.name) is proven and not proven.trouble()
        if proven is not None and alive and await self.lives.stranger(proven):
            alive = False  # `ensure` refuses it with the words that say whose the port is
        if proven is not None and alive and proven.dep == dep and not (self.fresh and self._spent(proven, attempt)):
            return proven
        if self.fresh and (spent := self.lives.handles.get(dep.name)) is not None and self._spent(spent, attempt):
            await self.lives.stop(spent, "OK", "each block has a server life of its own")
        for other in self.deps:
            if other.name != dep.name:
                await self.lives.stop_deployment(other, f"{dep.name} has its turn", of_run=self.row.run_id)
        handle = await self.lives.ensure(dep, self.row.run_id, self.cancel)
        launch = Phase(
            attempt_id=attempt.attempt_id,
            run_id=self.row.run_id,
            name="launch",
            start_wall_ns=begun,
            end_wall_ns=time.time_ns(),
        )
        described = manifest.asked(self.row.run_id, dep, handle.nodes) if attempt.variant else []
        await self.services.store.commit([launch, *(replace(v, life_id=handle.life.life_id) for v in described)])
        await self.telemetry.follow_server(handle)
        refused = await gate.check_gate(self.services, handle, self.row.run_id, self.gate_override)
        if refused:
            await self.lives.stop(handle, "GATE_FAILED", refused)
            raise LifeFailedError([Reason("GATE_FAILED", refused)])
        return handle

    def _spent(self, handle: LifeHandle, attempt: Attempt) -> bool:
        """Whether this server life has served another repeat or another variant."""
        rows = self.services.store.query(
            f"select repeat, variant from attempts where life_id = {literal(handle.life.life_id)} and state = 'done'"
        ).rows
        return any((repeat, variant) != (attempt.repeat, attempt.variant) for repeat, variant in rows)

    async def _fitted(self, attempt: Attempt, handle: LifeHandle) -> Attempt:
        """The attempt as this server can hold it: a shorter prompt where the case allows one, said in the notes."""
        case = Case.model_validate_json(attempt.case_spec or "{}")
        fit = fitted(case, context_of(self.services.store, handle.life.life_id))
        if fit is case:
            return attempt
        said = (
            f"{attempt.case_name} repeat {attempt.repeat}: {case.isl} + {case.osl} tokens do not fit the server's "
            f"context; measured with a prompt of {fit.isl}"
        )
        flags = [*(attempt.flags or []), "isl_reduced"]
        attempt = replace(attempt, isl=fit.isl, case_spec=fit.model_dump_json(), flags=flags)
        note = Note(run_id=self.row.run_id, wall_ns=time.time_ns(), who="twinrail", text=said)
        await self.services.store.commit([attempt, note])
        return attempt

    async def _failed(self, attempt: Attempt, outcome: str, detail: str) -> Attempt:
        done = replace(
            attempt,
            state="done",
            outcome=outcome,
            detail=detail or None,
            started_wall_ns=attempt.started_wall_ns or time.time_ns(),
            ended_wall_ns=time.time_ns(),
            flags=["simulated"] if self.row.simulated else None,
        )
        await self.services.store.commit([done])
        return done

    # -- journal

    async def _open_attempts(self) -> list[Attempt]:
        """Attempts still to do. One that was running is taken over when its client still has a story to tell."""
        rows = self.services.store.query(
            f"from attempts where run_id = {literal(self.row.run_id)} and state in ('planned', 'running') "
            "order by ordinal"
        ).dicts()
        todo = []
        for attempt in (Attempt(**row) for row in rows):
            if attempt.state == "running" and not await self._client_tells(attempt):
                again = replace(
                    attempt,
                    attempt_id=f"{attempt.attempt_id}v",
                    state="planned",
                    life_id=None,
                    job_id=None,
                    node=None,
                    started_wall_ns=None,
                    # Other prompts: those of the cut attempt may be in the server's prefix cache.
                    seed=random.Random(f"{attempt.attempt_id}v").getrandbits(31),
                )
                void = replace(attempt, state="void", detail="cut by a crash on our side; repeated")
                await self.services.store.commit([void, again])
                attempt = again
            todo.append(attempt)
        return todo

    async def _client_tells(self, attempt: Attempt) -> bool:
        """Whether the client of a running attempt still runs, or has ended by itself with all it had to say."""
        if attempt.job_id is None or attempt.node is None:
            return False
        try:
            link = await self.services.cluster.link(attempt.node)
            status = (await jobs.status(link, [attempt.job_id])).get(attempt.job_id)
        except NodeError:
            return False
        return status is not None and (status.state == "running" or status.exit_code == 0)

    async def _close_attempts(self, outcome: str, detail: str) -> None:
        """What was not begun is done with the run's own reason: every attempt is complete or says why not."""
        rows = self.services.store.query(
            f"from attempts where run_id = {literal(self.row.run_id)} and state in ('planned', 'running')"
        ).dicts()
        why = "not begun: " + (detail or "the run ended")
        end = "CANCELLED" if outcome == "OK" else outcome
        await self.services.store.commit(
            [
                replace(Attempt(**row), state="done", outcome=end, detail=why, ended_wall_ns=time.time_ns())
                for row in rows
            ]
        )

    # -- keep and clean

    async def _keep_jobs(self) -> None:
        """While the owner lives its jobs' time-to-live is pushed ahead, and the node locks with it."""
        while True:
            await asyncio.sleep(KEEP_ALIVE_S)
            for node in self.nodes:
                alive = [
                    f.job.job_id
                    for f in self.services.ingest.feeds.values()
                    if f.job.node == node.name and not f.drained.is_set()
                ]
                try:
                    link = await self.services.cluster.link(node.name)
                    await jobs.extend(link, alive, TTL_S)
                    await lock.extend(link, self.row.run_id, TTL_S)
                except NodeError as e:
                    log.warning("%s: time-to-live not extended: %s", node.name, e)

    async def _clean_up(self) -> None:
        """Stop our server unless it shall stay, stop the probes, read the last bytes, give the nodes back."""
        for dep in () if self.keep else self.deps:
            await self.lives.stop_deployment(dep, "the run ended", of_run=self.row.run_id)
        await self._follow_all()
        await self.telemetry.stop()
        await self._drain()
        await self.telemetry.judge_last()
        if self._seen:
            found = await manifest.after(self.services, self.dep, self.nodes, self.row.run_id)
            await self.services.store.commit(found)
        for name in self._locked:
            try:
                await lock.release(await self.services.cluster.link(name), self.row.run_id)
            except NodeError as e:
                log.warning("%s: lock not released, it ends by itself: %s", name, e)

    async def _follow_all(self) -> None:
        """Follow every job of the run, also those that an earlier owner started: their last bytes count too."""
        rows = self.services.store.query(f"from jobs where run_id = {literal(self.row.run_id)}").dicts()
        for job in (Job(**row) for row in rows):
            try:
                self.services.ingest.follow(await self.services.cluster.link(job.node), job)
            except NodeError as e:
                log.warning("%s: not read to the end: %s", job.job_id, e)

    async def _drain(self, limit_s: float = 30.0) -> None:
        """Until all bytes of this run's ended jobs are rows, or the limit: a dead node must not hold the summary."""
        waiting = [
            f
            for f in self.services.ingest.feeds.values()
            if f.job.run_id == self.row.run_id and not (self.keep and f.job.kind == "server")
        ]
        try:
            async with asyncio.timeout(limit_s):
                for feed in waiting:
                    await feed.drained.wait()
        except TimeoutError:
            left = ", ".join(f.job.job_id for f in waiting if not f.drained.is_set())
            log.warning("not read to the end: %s; `twinrail resume %s` tries again", left, self.row.run_id)
        for feed in waiting:
            self.services.ingest.unfollow(feed.job.job_id)
