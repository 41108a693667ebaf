"""A server life: find the one that is up, or start one rank by rank, and prove it ready by a real generation."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runners.engines import ENGINES
from runners.engines.base import RankCommand
from runners.flows import described, identity, startup
from runners.flows.outcome import Reason, decide
from runners.flows.services import Services
from runners.flows.sweep import stop_jobs
from runners.ingest import ENDED, Feed
from runners.launchers.ranks import follow_nccl, mark_of, rank_commands, server_job_id, start_ranks
from runners.nodes.link import NodeError
from runners.spec import Deployment, Node
from store.masking import mask_text
from store.queries import call, literal
from store.records import Life, Variable

ASK_EVERY_S = 1.0
EXTERNAL_READY_S = 30.0
LAST_WORDS_S = 5.0
NCCL_LOOK_S = 3.0
# Nothing of somebody else's is ended by us.
CLEARED = "end it (`twinrail check` and `ss -ltnp` there name it) or choose another port"
# What a fatal log event means for the attempt (names: `twinrail read --kinds`); any other is an engine crash.
FATAL_OUTCOME = {"oom": "OOM", **dict.fromkeys(("engine_start_failed", "port_in_use", "start_refused"), "START_FAILED")}


class LifeFailedError(Exception):
    """The server did not come up, or is no longer ours. `reasons` say why."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        self.outcome, self.detail = decide(reasons)
        super().__init__(f"{self.outcome}: {self.detail}")


@dataclass(slots=True)
class LifeHandle:
    """A living server and what is known of it."""

    life: Life
    dep: Deployment
    nodes: list[Node]
    commands: list[RankCommand]
    feeds: list[Feed] = field(default_factory=list)
    model: str = ""
    stopping: bool = False
    look_s: float = 0.0  # monotonic: when to look for NCCL's files again

    @property
    def url(self) -> str:
        """Where it answers, with the credentials of an external server: not for the store."""
        return ENGINES[self.dep.engine].url(self.dep, self.nodes)

    def trouble(self) -> list[Reason]:
        """Why this server is no longer fit to serve; empty while it is."""
        reasons = []
        for feed in self.feeds:
            who = f"rank {feed.job.rank} on {feed.job.node}"
            reasons += [
                Reason(FATAL_OUTCOME.get(e.name, "ENGINE_CRASH"), f"{who}: {e.name}: {e.detail or ''}".strip(": "))
                for e in feed.fatal[:3]
            ]
            reasons += [
                Reason("NODE_LOST", f"{who} names its peer {node.name} ({address}) in a transport error")
                for event in feed.fatal
                if event.name == "rdma_completion_error"
                for node, address in self._silent_peers(feed.job.node)
                if re.search(rf"(?<![\d.]){re.escape(address)}(?![\d.])", event.detail or "")
            ]
            status = feed.status
            if status is None or self.stopping:
                continue
            if status.state == "gone":
                reasons.append(
                    Reason("NODE_LOST", f"{who} is gone without an exit code (killed, or the node went down)")
                )
            elif status.state == "exited":
                outcome = "START_FAILED" if self.life.state == "starting" else "ENGINE_CRASH"
                reasons.append(Reason(outcome, f"{who} exited with code {status.exit_code}"))
        return reasons

    def _silent_peers(self, node: str) -> list[tuple[Node, str]]:
        """Other nodes whose rank has not ended by itself, with each address that a peer may name them by."""
        told = {f.job.node for f in self.feeds if f.status is not None and f.status.state == "exited"}
        silent = [n for n in self.nodes if n.name != node and n.name not in told]
        return [(n, a) for n in silent for a in (n.address, *(r.address for r in n.rails)) if a]


class Lives:
    """The server lives of one owner."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.handles: dict[str, LifeHandle] = {}  # by deployment

    async def ensure(self, dep: Deployment, run_id: str, cancel: asyncio.Event) -> LifeHandle:
        """A ready server of this deployment: the one that is up when it is the same, else a new one.

        Raises:
            LifeFailedError: it did not come up; whatever was started is stopped.
            NodeError: a node could not be reached at all.
        """
        engine = ENGINES[dep.engine]
        nodes = self.services.inventory.nodes_of(dep)
        try:
            for node in nodes:
                await self.services.cluster.root(node.name)
        except NodeError as e:
            await self._never_began(dep, run_id, str(e))
            raise
        commands = rank_commands(dep, nodes, self.services.cluster.planned_path)
        mark = mark_of(dep, commands) if commands else mask_text(dep.url or "")
        old = self._living(dep.name)
        if old is not None:
            handle = self._adopt(old, dep, nodes, commands)
            if old.fingerprint == mark and await self._fit(handle, cancel):
                return handle
            if handle.life.state != "gone":
                await self.stop(handle, "OK", "the deployment changed")
        life = Life(
            life_id=f"{run_id}.L{self._count(run_id) + 1}",
            run_id=run_id,
            deployment=dep.name,
            external=not commands,
            simulated=engine.simulated,
            url=mask_text(engine.url(dep, nodes)),
            engine=dep.engine,
            fingerprint=mark,
            started_wall_ns=time.time_ns(),
        )
        handle = LifeHandle(life, dep, nodes, commands)
        self.handles[dep.name] = handle
        await self._port_free(handle)
        await self.services.store.commit([life])
        await self._bring_up(handle, cancel)
        return handle

    async def _never_began(self, dep: Deployment, run_id: str, detail: str) -> None:
        """Record why no server of this deployment could be started, for whoever waits for one."""
        if self._living(dep.name) is None:
            now = time.time_ns()
            life = Life(
                life_id=f"{run_id}.L{self._count(run_id) + 1}",
                run_id=run_id,
                deployment=dep.name,
                simulated=ENGINES[dep.engine].simulated,
                engine=dep.engine,
                started_wall_ns=now,
                state="gone",
                ended_wall_ns=now,
                outcome="START_FAILED",
                detail=detail,
            )
            await self.services.store.commit([life])

    async def stop(self, handle: LifeHandle, outcome: str, detail: str) -> None:
        """Stop every rank (never a server that is not ours), and record the end. Safe to call twice."""
        handle.stopping = True
        self.handles.pop(handle.dep.name, None)
        ranks = self.services.store.query(
            f"select node, job_id from jobs where life_id = {literal(handle.life.life_id)} and kind = 'server' "
            "order by rank desc"
        )
        failures = await asyncio.gather(
            *(self._stop_rank(handle.dep, str(node), str(job_id)) for node, job_id in ranks.rows),
            return_exceptions=True,
        )
        left = [str(f) for f in failures if isinstance(f, NodeError)]
        if left:
            detail = "; ".join([detail, "not stopped: " + ", ".join(left)])
        row = replace(handle.life, state="gone", ended_wall_ns=time.time_ns(), outcome=outcome, detail=detail or None)
        handle.life = row
        await self.services.store.commit([row])
        for failure in failures:
            if isinstance(failure, BaseException) and not isinstance(failure, NodeError):
                raise failure

    async def _stop_rank(self, dep: Deployment, node: str, job_id: str) -> None:
        await stop_jobs(self.services, node, [job_id], dep.stop_timeout)

    async def stop_deployment(self, dep: Deployment, detail: str, *, of_run: str | None = None) -> None:
        """Stop the living server of a deployment, if there is one; also one that an earlier owner started.

        `of_run`: only if that run started it; a server that was up before a run stays up after it.
        """
        handle = self.handles.get(dep.name)
        if handle is None and (life := self._living(dep.name)) is not None:
            handle = LifeHandle(life, dep, self.services.inventory.nodes_of(dep), [])
        if handle is not None and of_run in (None, handle.life.run_id):
            await self.stop(handle, "OK", detail)

    def _living(self, deployment: str) -> Life | None:
        table = self.services.store.query(
            f"from lives where deployment = {literal(deployment)} and state in ('starting', 'ready') "
            "order by started_wall_ns desc limit 1"
        )
        return Life(**table.dicts()[0]) if table.rows else None

    def _count(self, run_id: str) -> int:
        return int(self.services.store.query(f"select count(*) from lives where run_id = {literal(run_id)}").rows[0][0])

    def _adopt(self, life: Life, dep: Deployment, nodes: list[Node], commands: list[RankCommand]) -> LifeHandle:
        """A handle on a life from the store, its jobs followed from where the last owner stopped reading."""
        if dep.name in self.handles and self.handles[dep.name].life.life_id == life.life_id:
            return self.handles[dep.name]
        handle = LifeHandle(life, dep, nodes, commands)
        self.handles[dep.name] = handle
        return handle

    async def _fit(self, handle: LifeHandle, cancel: asyncio.Event) -> bool:
        """Whether an old server is still up. One that was only starting is brought up further."""
        try:
            await self._bring_up(handle, cancel)
        except LifeFailedError:
            return False
        return True

    async def _bring_up(self, handle: LifeHandle, cancel: asyncio.Event) -> None:
        """Start what does not run yet, wait for the first real token, record `ready`. Stops everything on failure."""
        services = self.services
        try:
            if not handle.feeds and handle.commands:
                handle.feeds = await start_ranks(
                    services.cluster,
                    services.ingest,
                    services.store,
                    handle.life,
                    handle.dep,
                    handle.commands,
                    handle.life.run_id,
                )
            await self._wait_ready(handle, cancel)
        except (LifeFailedError, NodeError) as e:
            failed = e if isinstance(e, LifeFailedError) else LifeFailedError([Reason("START_FAILED", str(e))])
            await self.stop(handle, failed.outcome, failed.detail)
            raise failed from e

    async def _wait_ready(self, handle: LifeHandle, cancel: asyncio.Event) -> None:
        dep, services = handle.dep, self.services
        limit = min(dep.ready_timeout, EXTERNAL_READY_S) if handle.life.external else dep.ready_timeout
        deadline = time.monotonic() + limit
        said = "no answer yet"
        watch = startup.Watch()
        while True:
            if cancel.is_set():
                raise LifeFailedError([Reason("CANCELLED", "stopped while the server was starting")])
            if trouble := handle.trouble():
                raise LifeFailedError([*trouble, Reason("START_FAILED", await self._last_words(handle))])
            try:
                model = dep.served_model or ("" if handle.life.external else dep.model)
                answer = await services.ask(
                    handle.nodes[0], dep, "generate", handle.url, dep.served_model or "", str(dep.vocab[0]), "30"
                )
            except NodeError as e:
                if e.kind not in ("lost", "timeout"):
                    raise
                answer = {"ok": False, "detail": str(e)}
            if answer.get("ok"):
                if who := await self.stranger(handle):
                    raise LifeFailedError([Reason("START_FAILED", who)])
                handle.model = str(answer.get("model") or model)
                break
            said = str(answer.get("detail") or said)
            if time.monotonic() > deadline:
                stands = "" if handle.life.external else f"{await self._standstill(handle)}; "
                why = f"no token within {limit:.0f} s; {stands}the last answer was: {said}"
                raise LifeFailedError([Reason("START_FAILED", why)])
            await self._follow_nccl(handle)
            await self._note_standstill(handle, watch)
            await self._pause(ASK_EVERY_S)
        await self._follow_nccl(handle, last=True)
        if handle.life.state != "ready":
            handle.life = replace(handle.life, state="ready", ready_wall_ns=time.time_ns(), detail=None)
            told = await self._described(handle)
            await services.store.commit([handle.life, *told])

    async def _pause(self, seconds: float) -> None:
        """Sleep, but wake at once when bytes arrive: a fatal line must not wait for the next poll."""
        changed = self.services.ingest.changed
        try:
            async with asyncio.timeout(seconds), changed:
                await changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(0.2)

    async def _last_words(self, handle: LifeHandle) -> str:
        """The last line of every rank that has ended, once it is read: what an operator would look up next."""
        ended = [f for f in handle.feeds if f.status is not None and f.status.state in ENDED]
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                for feed in ended:
                    await feed.drained.wait()
        except TimeoutError:
            pass  # said with what has come so far
        words = []
        for feed in ended:
            rows = self.services.store.query(
                f"select text from log_lines where job_id = {literal(feed.job.job_id)} and trim(text) <> '' "
                'order by wall_ns desc, "offset" desc limit 1'
            ).rows
            words += [f"the last line of rank {feed.job.rank} on {feed.job.node}: {rows[0][0][:300]}"] if rows else []
        return "; ".join(words)

    async def _described(self, handle: LifeHandle) -> list[Variable]:
        """What the running server says of itself, and what its log says that it chose and took."""
        paths, store = ENGINES[handle.dep.engine].info_paths(), self.services.store
        try:
            answer = await self.services.ask(handle.nodes[0], handle.dep, "get", handle.url, *paths)
        except NodeError:
            answer = {}
        told = described.of_server(handle.life, answer.get("json"), handle.nodes[0].name) if answer.get("ok") else []
        for of in (described.of_log, described.of_memory):
            told += await asyncio.to_thread(of, store, handle.life)
        handle.life = replace(handle.life, version=described.version_of(told))
        return told

    async def stranger(self, handle: LifeHandle) -> str | None:
        """Why the server that answers is none of ours, by the process or container behind the port; None when it is.

        Raises NodeError.
        """
        if handle.life.external or not handle.commands:
            return None
        first = handle.nodes[0].name
        link = await self.services.cluster.link(first)
        who = await identity.stranger(link, handle.dep, server_job_id(handle.life.life_id, 0))
        if who is None:
            return None
        return f"port {handle.dep.port} on {first} is held by a server that is not ours: {who}; {CLEARED}"

    async def _standstill(self, handle: LifeHandle) -> str:
        """Which stage and which ranks the start waits for."""
        rows = await self._marks(handle)
        return startup.hanging(rows, [n.name for n in handle.nodes], handle.dep.topology.ranks)

    async def _marks(self, handle: LifeHandle) -> list[dict[str, Any]]:
        query = call("startup_ranks", handle.life.life_id)
        return await asyncio.to_thread(lambda: self.services.store.query(query).dicts())

    async def _follow_nccl(self, handle: LifeHandle, *, last: bool = False) -> None:
        """NCCL's processes write files of their own, which show up one by one while a server starts."""
        if not last and time.monotonic() < handle.look_s:
            return
        handle.look_s = time.monotonic() + NCCL_LOOK_S
        services = self.services
        with contextlib.suppress(NodeError):  # a lost link comes back, and then the next look finds them
            await follow_nccl(services.cluster, services.ingest, handle.feeds, handle.commands)

    async def _note_standstill(self, handle: LifeHandle, watch: startup.Watch) -> None:
        """Say in the life's row what a start without progress waits for, long before its limit; and that it goes on."""
        if handle.life.external or handle.life.state == "ready" or not watch.due(time.monotonic()):
            return
        stands = watch.stands(await self._marks(handle), time.monotonic())
        detail = await self._standstill(handle) if stands else None
        if detail != handle.life.detail:
            handle.life = replace(handle.life, detail=detail)
            await self.services.store.commit([handle.life])

    async def _port_free(self, handle: LifeHandle) -> None:
        """A server that already listens there would answer in place of ours: refuse to start beside it."""
        if handle.life.external:
            return
        first = handle.nodes[0].name
        found = await identity.listener(await self.services.cluster.link(first), handle.dep, None)
        if found.listens:
            who = found.strangers(None)
            detail = f"port {handle.dep.port} on {first} is held by a server that is not ours: {who}; {CLEARED}"
            await self.stop(handle, "START_FAILED", detail)
            raise LifeFailedError([Reason("START_FAILED", detail)])
