"""`run` and `resume`: order it, follow it, print what came out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from console.verbs import DONE, INFRASTRUCTURE, NEGATIVE, Place, out, out_json, run_async, say, session_of
from console.verbs.show import print_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console.verbs.search import SearchRequest
    from runners.session import Session
    from runners.spec import Inventory

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What `run` was asked for."""

    what: list[str]
    deployment: str | None = None
    repeats: int | None = None
    keep: bool = False
    why: str | None = None
    gate_override: str | None = None
    changes: str | None = None
    expects: str | None = None
    vary: dict[str, Any] | None = None
    scale: float | None = None

    def params(self) -> dict[str, Any]:
        """As an order's parameters."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}


def vary_of(words: list[str]) -> dict[str, Any] | None:
    """`--vary concurrency=8,16 --vary isl=2048` as an order says it. Raises ConfigError for what is no assignment."""
    from runners.flows.vary import Vary
    from runners.spec import ConfigError

    said: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in Vary.model_fields:
            raise ConfigError(f"--vary {word}: write one of {', '.join(f'{n}=' for n in Vary.model_fields)}")
        said[name] = value.split(",") if name == "concurrency" else value
    return said or None


Asked = TypeVar("Asked", "RunRequest", "SearchRequest")
QUESTIONS = (
    ("changes", "what changes, against what was measured before?"),
    ("why", "why should that affect what limits the results now?"),
    ("expects", "what effect do you expect?"),
)


def asked_once(request: Asked) -> Asked:
    """The request with the answers of whoever sits at the terminal; unchanged where nobody does or a flag answers."""
    given = any(getattr(request, name) is not None for name, _ in QUESTIONS)
    if given or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return request
    say("three questions for the notes (enter skips one; --changes, --why, --expects answer unasked)")
    answers: dict[str, Any] = {}
    for name, question in QUESTIONS:
        sys.stderr.write(f"  {question} ")
        sys.stderr.flush()
        if (line := sys.stdin.readline().strip()) != "":
            answers[name] = line
    return replace(request, **answers)


def run_run(place: Place, request: RunRequest, *, as_json: bool, foreground: bool, dry_run: bool) -> int:
    """Exit code: 0 every attempt OK, 1 some ended otherwise, 3 could not be carried out."""
    inventory = place.inventory()
    if dry_run:
        from console.verbs.dry_run import show_plan

        return show_plan(inventory, request, as_json=as_json)
    if not (as_json or place.demo):
        _checked(inventory, request)
        request = asked_once(request)
    return run_async(_run(inventory, request, as_json=as_json, foreground=foreground))


def _checked(inventory: Inventory, request: RunRequest) -> None:
    """Bad usage is told before anything is asked or started. Raises ConfigError."""
    from runners.session import planned_without_store

    planned_without_store(inventory, "start_run", **request.params())


async def _run(inventory: Inventory, request: RunRequest, *, as_json: bool, foreground: bool) -> int:
    _checked(inventory, request)
    async with session_of(inventory, foreground=foreground) as session:
        answer = await session.order("start_run", **request.params())
        run_id = str(answer["run_id"])
        say(f"run {run_id}: {answer['attempts']} attempts, results in {inventory.results_path / run_id}")
        return await follow(session, run_id, as_json=as_json)


def run_resume(place: Place, run_id: str | None, *, as_json: bool, foreground: bool) -> int:
    """Exit code as of `run`, of the worst run that was resumed."""
    return run_async(_resume(place.inventory(), run_id, as_json=as_json, foreground=foreground))


async def _resume(inventory: Inventory, run_id: str | None, *, as_json: bool, foreground: bool) -> int:
    async with session_of(inventory, foreground=foreground) as session:  # a new owner resumes by itself
        rows = await session.rows("runs_list")
        known = {str(r["run_id"]): r["state"] for r in rows}
        if run_id is not None and run_id not in known:
            say(f"twinrail: no run is called {run_id!r}; `twinrail runs` lists them")
            return INFRASTRUCTURE
        open_runs = [r for r, state in known.items() if state != "done"]
        wanted = [run_id] if run_id else open_runs
        if not wanted:
            say("nothing to resume: every run is done")
            if as_json:
                out_json({"runs": []})
            return DONE
        await session.order("resume", run_id=run_id)
        kinds = {str(r["run_id"]): r["kind"] for r in rows}
        return max([await follow(session, r, as_json=as_json, kind=kinds[r]) for r in wanted])


async def follow(session: Session, run_id: str, *, as_json: bool, kind: str = "run") -> int:
    """Print progress until the run is done, then its summary. The first Ctrl-C stops the run, the second leaves."""
    from store.errors import OwnerGone

    if kind == "watch":
        from console.verbs.watch import follow_watch

        return await follow_watch(session, run_id, as_json=as_json)
    try:
        return await _follow(session, run_id, as_json=as_json)
    except OwnerGone as e:
        say(f"{e}. The work on the nodes goes on and nothing is lost: `twinrail resume {run_id}` starts a new owner")
        return INFRASTRUCTURE


async def follow_to_end(session: Session, run_id: str) -> None:
    """Say progress until the run is done. Raises OwnerGone."""
    with interrupts(f"`twinrail resume {run_id}` follows it again") as presses:
        said = ""
        stopping = False
        while True:
            if presses.is_set() and not stopping:
                stopping = True
                say(
                    "stopping: the client ends its requests, servers are stopped, everything is kept (again: leave now)"
                )
                await _stop(session, run_id)
            line, done = await _progress(session, run_id)
            if line != said:
                said = line
                say(line)
            if done:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await (asyncio.sleep(POLL_S) if stopping else presses.wait())


async def _follow(session: Session, run_id: str, *, as_json: bool) -> int:
    await follow_to_end(session, run_id)
    document = await session.document(run_id)
    if as_json:
        out_json(document)
    else:
        print_document(document)
        out(f"results: {session.config.results_path / run_id}")
    return DONE if document["outcome"] == "OK" else NEGATIVE


async def _stop(session: Session, run_id: str) -> None:
    from store.errors import OwnerGone, StoreError

    try:
        await session.order("stop_run", run_id=run_id)
    except OwnerGone:
        raise
    except StoreError as e:  # it has just ended by itself: its summary comes next
        say(str(e))


@contextlib.contextmanager
def interrupts(left: str) -> Iterator[asyncio.Event]:
    """Set by the first SIGINT. The second leaves at once, whatever hangs, and says `left`: what is on goes on without
    us."""
    pressed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def press() -> None:
        if not pressed.is_set():
            pressed.set()
            return
        say(f"left. {left}")
        os._exit(INFRASTRUCTURE)  # an orderly end would wait for an owner that may never answer

    loop.add_signal_handler(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _progress(session: Session, run_id: str) -> tuple[str, bool]:
    from runners.flows.outcome import WAITING

    run = (await session.rows("run_progress", run_id))[0]
    head = f"{run['done']}/{run['attempts']} attempts"
    if run["state"] == "done":
        return f"{head}, {run['outcome']}{': ' + run['detail'] if run['detail'] else ''}", True
    if waits := (run["detail"] or "").partition(WAITING)[2]:
        return f"{head}, waits: {waits}", False
    if run["state"] == "collecting":
        return f"{head}, collecting logs and results", False
    if run["case_name"] is None:
        return f"{head}, {run['life_state'] or ('ending' if run['done'] else 'checking the nodes')}", False
    where = run["phase"] or run["life_state"] or "starting"
    return f"{head}, {run['case_name']} repeat {run['repeat']}: {where}", False
