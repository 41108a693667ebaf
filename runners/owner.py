"""The owner: the one process that holds the store and carries out orders. Headless, in a session of its own.

    python -m runners.owner --config FILE

It ends by itself when no run is on, no server of ours is up, and nobody has asked it anything for a while. Killed, it
loses nothing: jobs on the nodes go on, and the next owner resumes every unfinished run from the store's journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import orjson

from runners import orders
from runners.cluster import Cluster
from runners.engines import ENGINES
from runners.flows import check
from runners.flows.asked import ab_asked, discipline, search_asked, work_asked
from runners.flows.hands import Hands
from runners.flows.life import Lives
from runners.flows.run_case import RunFlow
from runners.flows.search import SearchFlow, continued, options_of
from runners.flows.services import Services
from runners.flows.sweep import Sweeper
from runners.flows.trees import export_run, import_tree
from runners.flows.upkeep import keep_jobs
from runners.flows.watch import WatchFlow, new_watch, place_of
from runners.ingest import Ingest
from runners.launchers.ranks import mark_of, rank_commands
from runners.nodes.link import NodeError
from runners.notify import tell_end
from runners.spec import ConfigError, Deployment, Inventory, load_inventory
from store.database import Store, StoreError
from store.errors import QueryError
from store.masking import mask_text
from store.queries import literal
from store.records import Attempt, Life, Note, Order, Run

log = logging.getLogger("twinrail.owner")

STORE_RETRY_S = 10.0
LABEL_CHARS = 24  # of a run's id: with the longest node name behind it, it still has to be the name of a job
FLOWS: dict[str, type[RunFlow]] = {
    "run": RunFlow,
    "ab": RunFlow,
    "search": SearchFlow,
    "watch": WatchFlow,
}  # by Run.kind
CRASHED_FLOW = "an error of twinrail itself ended this; see owner.log"


@dataclass(slots=True)
class Active:
    """A run that is being carried out."""

    flow: RunFlow
    task: asyncio.Task[None]
    begun: bool = False  # whether its turn has come


class Owner:
    """Async context manager. Entering opens the store (StoreError when another owner has it) and resumes runs."""

    def __init__(self, inventory: Inventory) -> None:
        self._first_inventory = inventory
        self.runs: dict[str, Active] = {}
        self.stop_asked = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()  # two benchmarks at once would measure each other
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        # One DuckDB thread: a watcher's many small queries cost half as much (tests/benchmarks/console_cost.py).
        self.store = await asyncio.to_thread(Store.open, self._first_inventory.store_path, threads=1)
        self.cluster = Cluster(self._first_inventory, self.store)
        self.ingest = Ingest(self.store)
        self.services = Services(self.store, self.cluster, self.ingest)
        self.lives = Lives(self.services)
        self.hands = Hands(self.lives)
        self.sweeper = Sweeper(self.services)
        self._background = [asyncio.create_task(w) for w in (self.sweeper.run(), keep_jobs(self.services))]
        self.resume_all()
        self._take_over_servers()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Leave everything on the nodes as it is; what is queued for the store is written."""
        tasks = [*self._background, *self._tasks, *(a.task for a in self.runs.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.ingest.close()
        await self.cluster.close()
        await asyncio.to_thread(self.store.close)

    @property
    def inventory(self) -> Inventory:
        """The configuration as it is now."""
        return self.cluster.inventory

    async def _reload(self) -> None:
        """Take the configuration file as it is now: an operator edits it and runs again. Raises ConfigError."""
        if self.inventory.path is not None:
            await self.cluster.update(load_inventory(self.inventory.path), busy=bool(self.runs))

    @property
    def busy(self) -> bool:
        """Whether something would be missed if the owner ended now: a run, a server of ours, a job to be stopped."""
        ours = any(not h.life.external for h in self.lives.handles.values())
        return bool(self.runs or self._tasks or ours or self.sweeper.left)

    # -- orders

    def submit(self, text: str, role: str) -> str:
        """Answer (JSON text) to an order; from any thread."""
        future = asyncio.run_coroutine_threadsafe(self._submit(text, role), self.loop)
        try:
            return orjson.dumps(future.result(timeout=20.0)).decode()
        except TimeoutError:
            return orjson.dumps({"ok": False, "detail": "the owner did not answer within 20 s"}).decode()

    async def order(self, kind: str, **params: Any) -> dict[str, Any]:
        """The same for callers in the owner's own loop."""
        return await self._submit(orjson.dumps({"kind": kind, **params}).decode(), "order")

    async def _submit(self, text: str, role: str) -> dict[str, Any]:
        order_id = f"o{time.time_ns()}"
        kind, who = "?", "unknown"
        try:
            order = orders.parse_order(text, role)
            kind, who = order.kind, order.who
            answer = await self._carry_out(order)
            state, detail = "accepted", None
        except (orders.OrderError, ConfigError, StoreError, NodeError) as e:
            answer, state, detail = {"ok": False, "detail": str(e)}, "refused", str(e)
        row = Order(
            order_id=order_id,
            wall_ns=time.time_ns(),
            who=who,
            kind=kind,
            params=mask_text(text[: orders.MAX_ORDER_BYTES]),
            state=state,
            detail=detail,
            run_id=answer.get("run_id"),
        )
        try:
            await self.store.commit([row])
        except StoreError as e:  # a full disk must not keep anybody from stopping a run
            log.warning("order not recorded: %s %s by %s: %s", kind, state, who, e)
        if (work := answer.pop("work", None)) is not None:
            self._spawn(self._work(row, work))
        return {**answer, "order_id": order_id}

    async def _work(self, row: Order, work: Callable[[], dict[str, Any]]) -> None:
        """Carry out what takes longer than an answer may; the order's row says how it ended (state done | failed)."""
        try:
            answer = await asyncio.to_thread(work)
        except StoreError as e:
            row = replace(row, state="failed", detail=str(e))
        else:
            row = replace(row, state="done", detail=orjson.dumps(answer).decode(), run_id=answer.get("run_id"))
        await self.store.commit([row])

    async def _carry_out(self, order: orders.AnyOrder) -> dict[str, Any]:
        match order:
            case orders.StartRun():
                await self._reload()
                return await self._start_run(order)
            case orders.StartSearch():
                await self._reload()
                return await self._start_search(order)
            case orders.ContinueSearch():
                await self._reload()
                return await self._continue_search(order)
            case orders.StartAb():
                await self._reload()
                return await self._start_ab(order)
            case orders.StopRun():
                await self._stop_run(order.run_id)
            case orders.PauseRun() | orders.SkipAttempt() | orders.RetryAttempt():
                return await self._wish(order)
            case orders.Resume():
                return self._resume(order.run_id)
            case orders.Up():
                await self._reload()
                dep = self.inventory.deployment(order.deployment)
                self._spawn(self.hands.up(dep))
            case orders.Check():
                await self._reload()
                self._spawn(check.recorded(self.services, self._meant(order.deployment), full=order.full))
            case orders.Down():
                dep = self._free(order.deployment)
                self._spawn(self.hands.down(dep, f"stopped by {order.who}"))
            case orders.Restart():
                await self._reload()
                self._spawn(self.hands.restart(self._free(order.deployment), f"restarted by {order.who}"))
            case orders.StartWatch():
                await self._reload()
                return await self._start_watch(order)
            case orders.Export():
                results = self.inventory.results_path
                return {"ok": True, "work": partial(export_run, self.store, order.run_id, results, order.to)}
            case orders.ImportTree():
                results = self.inventory.results_path
                return {"ok": True, "work": partial(import_tree, self.store, order.path, results, force=order.force)}
            case orders.AddNote():
                note = Note(run_id=order.run_id, wall_ns=time.time_ns(), who=order.who, text=mask_text(order.text))
                await self.store.commit([note])
            case orders.StopOwner():
                self.stop_asked.set()
        return {"ok": True}

    # -- runs

    async def _stop_run(self, run_id: str) -> None:
        active = self.runs.get(run_id)
        if active is None:
            raise orders.OrderError(f"run {run_id} is not on")
        active.flow.cancel.set()
        if not active.begun and active.flow.row.state == "planned":  # it need not wait for its turn to be told so
            active.task.cancel()
            await asyncio.gather(active.task, return_exceptions=True)
            await active.flow.call_off("stopped by the operator before its turn")

    async def _wish(self, order: orders.PauseRun | orders.SkipAttempt | orders.RetryAttempt) -> dict[str, Any]:
        active = self.runs.get(order.run_id)
        if active is None or active.flow.row.state not in ("planned", "running"):
            raise orders.OrderError(f"run {order.run_id} is not on, or is ending")
        if isinstance(active.flow, WatchFlow):
            raise orders.OrderError("a watch has no attempts to pause, skip or repeat: let it go on, or stop it")
        said = await active.flow.wishes.take(active.flow.row, order)
        return {"ok": True, "run_id": order.run_id, "detail": said}

    def _resume(self, run_id: str | None) -> dict[str, Any]:
        """Pauses end, of one run or of all; every unfinished run is on."""
        for known, active in self.runs.items():
            if run_id in (None, known):
                active.flow.wishes.resume()
        return {"ok": True, "run_id": run_id, "runs": self.resume_all()}

    async def _start_run(self, order: orders.StartRun) -> dict[str, Any]:
        work = work_asked(self.inventory, order)
        dep = self.inventory.deployment(work.deployment)
        run = self._new_run("run", order, order.what, dep, work.options())
        attempts = work.attempts(run.run_id)
        await self.store.commit([run, *attempts])
        self._begin(run, dep)
        return {"ok": True, "run_id": run.run_id, "attempts": len(attempts)}

    async def _start_search(self, order: orders.StartSearch) -> dict[str, Any]:
        case, search = search_asked(self.inventory, order)
        dep = self.inventory.deployment(order.deployment)
        options = options_of(case, search, self.inventory.slo.get(case.slo or ""))
        run = self._new_run("search", order, [order.what], dep, options)
        await self.store.commit([run])
        self._begin(run, dep)
        return {"ok": True, "run_id": run.run_id}

    async def _start_ab(self, order: orders.StartAb) -> dict[str, Any]:
        work, options = ab_asked(self.inventory, order)
        dep = self.inventory.deployment(work.deployment)
        run = self._new_run("ab", order, ["ab", *order.what], dep, options)
        attempts = work.attempts(run.run_id)
        await self.store.commit([run, *attempts])
        self._begin(run, dep)
        return {"ok": True, "run_id": run.run_id, "attempts": len(attempts)}

    async def _continue_search(self, order: orders.ContinueSearch) -> dict[str, Any]:
        rows = self.store.query(f"from runs where run_id = {literal(order.run_id)} and kind = 'search'").dicts()
        if not rows or rows[0]["state"] != "done":
            raise orders.OrderError(f"{order.run_id} is no finished search; `twinrail runs` lists them")
        run = Run(**rows[0])
        dep = self.inventory.deployment(run.deployment)
        await self._same_server(run, dep)
        asked = order.model_dump(exclude={"kind", "who", "run_id"}, exclude_none=True)
        spec = continued(self.store, run, asked)
        run = replace(run, state="planned", outcome=None, detail=None, ended_wall_ns=None, spec=spec)
        await self.store.commit([run])
        self._begin(run, dep)
        return {"ok": True, "run_id": run.run_id}

    async def _same_server(self, run: Run, dep: Deployment) -> None:
        """Refuse to go on with points of a server that is configured otherwise now. Raises OrderError."""
        lives = self.store.query(
            f"select fingerprint from lives where run_id = {literal(run.run_id)} order by started_wall_ns desc limit 1"
        ).rows
        nodes = self.inventory.nodes_of(dep)
        for node in nodes:
            await self.cluster.root(node.name)
        commands = rank_commands(dep, nodes, self.cluster.planned_path)
        if commands and lives and lives[0][0] != mark_of(dep, commands):
            raise orders.OrderError(f"{dep.name} is configured otherwise since {run.run_id}: start a new search")

    async def _start_watch(self, order: orders.StartWatch) -> dict[str, Any]:
        dep = place_of(self.inventory, order.deployment)
        if (other := self._on(dep)) is not None:
            kind, run_id = other.row.kind, other.row.run_id
            raise orders.OrderError(
                f"{kind} {run_id} is on there and has probes of its own: the console shows it live, "
                f"`twinrail resume {run_id}` follows it"
            )
        run = new_watch(self._new_run_id("watch"), order, self.inventory)
        await self.store.commit([run])
        self._begin(run, dep)
        return {"ok": True, "run_id": run.run_id}

    def _on(self, dep: Deployment) -> RunFlow | None:
        """What is on, or was asked to end a moment ago, on one of these nodes."""
        nodes = {n.name for n in self.inventory.nodes_of(dep)}
        flows = (a.flow for a in self.runs.values() if a.begun)
        return next((f for f in flows if nodes & {n.name for n in f.nodes}), None)

    def _free(self, deployment: str) -> Deployment:
        """The deployment, which no run uses and which is ours to stop. Raises OrderError, ConfigError."""
        dep = self.inventory.deployment(deployment)
        if dep.engine == "external":
            raise orders.OrderError(f"{deployment} is somebody else's server (external): stop it where it runs")
        for run_id, active in self.runs.items():
            if active.begun and active.flow.row.kind != "watch" and active.flow.dep.name == deployment:
                raise orders.OrderError(
                    f"run {run_id} uses {deployment}: stop the run first (x on the live screen, or Ctrl-C in "
                    f"`twinrail resume {run_id}`)"
                )
        return dep

    def _new_run(
        self,
        kind: str,
        order: orders.StartRun | orders.StartSearch | orders.StartAb,
        what: list[str],
        dep: Deployment,
        options: dict[str, Any],
    ) -> Run:
        run_id = self._new_run_id(what[0])
        return Run(
            run_id=run_id,
            kind=kind,
            deployment=dep.name,
            plan=" ".join(what),
            simulated=ENGINES[dep.engine].simulated,
            created_wall_ns=time.time_ns(),
            who=order.who,
            why=order.why,
            results_dir=str(self.inventory.results_path / run_id),
            spec=orjson.dumps({**options, **discipline(order)}).decode(),
        )

    def _new_run_id(self, label: str) -> str:
        name = re.sub(r"[^A-Za-z0-9]+", "-", label).lower()[:LABEL_CHARS].rstrip("-")
        stem = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{name}"
        known = {
            r[0] for r in self.store.query(f"select run_id from runs where run_id like {literal(stem + '%')}").rows
        }
        return next(i for n in range(1, 1000) if (i := stem if n == 1 else f"{stem}-{n}") not in known)

    def resume_all(self) -> list[str]:
        """Begin every unfinished run that is not on already; their ids. A run without its deployment is ended."""
        rows = self.store.query("from runs where state <> 'done' order by created_wall_ns").dicts()
        begun = []
        for run in (Run(**row) for row in rows):
            if run.run_id in self.runs:
                continue
            try:
                known = place_of if run.kind == "watch" else Inventory.deployment
                self._begin(run, known(self.inventory, run.deployment))
            except ConfigError as e:
                self._abandon(run, str(e))
                continue
            begun.append(run.run_id)
        return begun

    def _abandon(self, run: Run, why: str) -> None:
        """End a run that nothing can carry on. Its attempts say so, and its servers become the sweeper's."""
        now, mine = time.time_ns(), f"where run_id = {literal(run.run_id)}"
        attempts = self.store.query(f"from attempts {mine} and state in ('planned', 'running')").dicts()
        lives = self.store.query(f"from lives {mine} and state in ('starting', 'ready')").dicts()
        end: dict[str, Any] = {"outcome": "START_FAILED", "detail": why, "ended_wall_ns": now}
        self.store.write(
            [
                *(replace(Attempt(**row), state="done", **end) for row in attempts),
                *(replace(Life(**row), state="gone", **end) for row in lives),
                replace(run, state="done", **end),
            ]
        )

    def _begin(self, run: Run, dep: Deployment) -> None:
        flow = FLOWS[run.kind](self.services, self.lives, run, dep)
        task = asyncio.create_task(self._run(flow), name=f"run {run.run_id}")
        self.runs[run.run_id] = Active(flow, task)

    async def _run(self, flow: RunFlow) -> None:
        """Carry a run out; the boundary where a defect of ours becomes an event instead of a dead owner."""
        run_id = flow.row.run_id
        try:
            if isinstance(flow, WatchFlow):  # it disturbs nobody, and gives way to what it would disturb
                self.runs[run_id].begun = True
                await self._carry(flow)
                return
            async with self._one_at_a_time:
                await self._end_watches(flow)
                self.runs[run_id].begun = True
                await self._carry(flow)
            if flow.row.state == "done":
                await tell_end(self.inventory.project.notify, flow.row)
        finally:
            self.runs.pop(run_id, None)

    async def _end_watches(self, run: RunFlow) -> None:
        """A run has probes of its own: watches of its nodes end, and their probes are gone before it begins."""
        nodes = {n.name for n in run.nodes}
        for watch, task in [(a.flow, a.task) for a in self.runs.values()]:
            if isinstance(watch, WatchFlow) and nodes & {n.name for n in watch.nodes}:
                watch.why = f"{run.row.kind} {run.row.run_id} began, with probes of its own"
                watch.cancel.set()
                quiet = asyncio.create_task(watch.quiet.wait())
                await asyncio.wait({quiet, task}, return_when=asyncio.FIRST_COMPLETED)
                quiet.cancel()

    async def _carry(self, flow: RunFlow) -> None:
        run_id = flow.row.run_id
        broken = False
        while True:
            try:
                await (flow.give_up(CRASHED_FLOW) if broken else flow.run())
            except Exception as e:
                if isinstance(e, StoreError) and not isinstance(e, QueryError):
                    # a full disk: what is on the nodes stays there, the run goes on from the journal
                    log.error("run %s waits: %s", run_id, e)  # noqa: TRY400 - the text says it all
                    with contextlib.suppress(StoreError):
                        await flow.waits(str(e))
                    await asyncio.sleep(STORE_RETRY_S)
                    continue
                log.exception("run %s", run_id)  # a defect of ours: waiting would not mend it
                if broken:
                    return
                broken = True
            else:
                return

    def _take_over_servers(self) -> None:
        """Servers that an earlier owner left up without a run: watched again, so that `down` finds them."""
        rows = self.store.query("from lives where state in ('starting', 'ready') and not external").dicts()
        for life in rows:
            known = life["deployment"] in self.inventory.deployments
            if known and life["run_id"] not in self.runs:
                self._spawn(self.hands.up(self.inventory.deployments[life["deployment"]], life["run_id"] or "up"))

    def _meant(self, name: str | None) -> Deployment | None:
        """The named deployment, the only one, or none. Raises ConfigError."""
        return self.inventory.deployment(name) if name or len(self.inventory.deployments) == 1 else None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
