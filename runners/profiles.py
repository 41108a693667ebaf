"""Profiles for a screen: captures in, plain values out, and cells and events of their timelines on demand."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from store.errors import StoreError

ROOT: Final = Path(__file__).resolve().parents[1]
Progress = Callable[[int, int, str], None]
"""Files done, files in all, the one done last."""


class ProfileError(StoreError):
    """The captures cannot be shown; the text says why."""


@dataclass(frozen=True)
class Found:
    """Events behind a number. rows: name, family, stream, start_ns (of the capture), at_ns (of the common axis),
    length_ns, launched_by, rank (position in the report). found: how many; more: that even these are not all."""

    rows: list[dict[str, Any]]
    found: int
    more: bool


class Profile:
    """One or more captures, analysed. Times are ns of a common axis that begins with the first event of any rank.

    report: the `analyze` document. tables: families by `files`, `kinds` and (per rank) `steps`, as
    `store.analysis.compare.scenario` gives them, with copy_share. diff: what changed from the first
    file to the second, where there are just two. starts_ns: each rank's first event. clock: what the
    axis rests on. text: the whole report as text.
    """

    def __init__(self, worker: _Worker, said: dict[str, Any]) -> None:
        found = said["profile"]
        self._worker = worker
        self.families: list[str] = said["families"]
        self.report: dict[str, Any] = found["report"]
        self.tables: dict[str, list[Any]] = found["tables"]
        self.diff: dict[str, Any] | None = found["diff"]
        self.starts_ns: list[int] = found["starts_ns"]
        self.span_ns: int = found["span_ns"]
        self.clock: str = found["clock"]
        self.text: str = found["text"]

    async def lanes(self, start_ns: int, end_ns: int, width: int) -> list[dict[str, Any]]:
        """Rows of cells: rank, name (device, stream N), family (index into `families`, -1 for nothing) and share of
        each cell, first_ns and last_ns of the rank's events. Raises ProfileError."""
        rows: list[dict[str, Any]] = await self._worker.ask(
            {"ask": "lanes", "start": start_ns, "end": max(end_ns, start_ns + 1), "width": max(width, 1)}
        )
        return rows

    async def events(
        self,
        *,
        rank: int | None = None,
        family: str | None = None,
        name: str | None = None,
        stream: str | None = None,
        window_ns: tuple[int, int] | None = None,
        length_ns: tuple[int, int | None] | None = None,
        after_gap_ns: tuple[int, int | None] | None = None,
        gap_call: str | None = None,
    ) -> Found:
        """The events that all the conditions given hold for, in time order. length_ns: kernels at least as long as the
        first and shorter than the second; after_gap_ns: what ends a device gap of such a length; gap_call: what ends a
        gap in which the host was in this call. Raises ProfileError."""
        start, end = window_ns or (None, None)
        asked = {"rank": rank, "family": family, "name": name, "stream": stream, "start": start, "end": end}
        more = {"length": length_ns, "after_gap": after_gap_ns, "gap_call": gap_call}
        return Found(**await self._worker.ask({"ask": "events", **asked, **more}))

    async def close(self) -> None:
        """End the process behind it."""
        await self._worker.end()


class _Worker:
    """The process that holds the captures. Answers come in the order of the questions."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()
        self._asking: set[asyncio.Task[Any]] = set()

    @classmethod
    async def start(cls) -> _Worker:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "runners.profiles_process"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,  # it must not write over the screen
                env=environment,
                start_new_session=True,  # so that giving up ends the processes that it started too
            )
        )

    async def ask(self, question: dict[str, Any]) -> Any:
        """An answer. Whoever is cancelled while waiting leaves the pipe in step all the same."""
        task = asyncio.create_task(self._ask(question))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return await asyncio.shield(task)

    async def _ask(self, question: dict[str, Any]) -> Any:
        async with self._turn:
            await self.send(question)
            return await self.next()

    async def send(self, value: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = orjson.dumps(value)
        self._process.stdin.write(len(body).to_bytes(8, "big") + body)
        with contextlib.suppress(ConnectionError):  # its end is told by `next`
            await self._process.stdin.drain()

    async def next(self) -> Any:
        assert self._process.stdout is not None
        try:
            size = int.from_bytes(await self._process.stdout.readexactly(8), "big")
            return orjson.loads(await self._process.stdout.readexactly(size))
        except asyncio.IncompleteReadError:
            code = await self._process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise ProfileError(f"the analysis ended early ({how}); too little memory is the usual cause") from None

    async def end(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()


async def open_profile(
    files: Sequence[Path],
    progress: Progress = lambda done, of, file: None,
    *,
    families: Path | None = None,
    columns: bool = True,
) -> Profile:
    """Analyse captures (or folders of them) in a process of their own. Files that cannot be used are sentences in
    `report["problems"]`. families: a file of the user's own family rules; columns: keep columnar files beside big
    traces. Cancelling ends the process. Raises ProfileError when there is nothing to show at all."""
    missing = [str(file) for file in files if not file.exists()]
    if missing or not files:
        raise ProfileError(f"no such file: {', '.join(missing)}" if missing else "no file given")
    worker = await _Worker.start()
    try:
        asked = {"files": [str(file) for file in files], "columns": columns}
        await worker.send(asked | {"families": str(families) if families else None})
        while "done" in (said := await worker.next()):
            progress(said["done"], said["of"], said["file"])
    except BaseException:
        await worker.end()
        raise
    if "failed" in said:
        await worker.end()
        raise ProfileError(said["failed"])
    return Profile(worker, said)


def paths_of(text: str) -> list[Path]:
    """Paths as an operator writes them: several, quoted, with ~ and wildcards. Raises ProfileError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ProfileError(f"not a path: {error}") from None
    found: list[Path] = []
    for word in words:
        path = os.path.expanduser(word)
        found += [Path(p) for p in sorted(glob.glob(path))] or [Path(path)]
    return found
