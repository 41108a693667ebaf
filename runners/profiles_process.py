"""The process behind a profile on screen: reads the captures, answers with plain values over its stdin and stdout.

A process of its own, so that a big capture neither holds up a screen nor takes it down, and so that giving up is a
kill. Frames both ways: length (8 bytes, big-endian), then JSON. It ends when its stdin does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, Final

import numpy as np
import orjson

from store.analysis.compare import diff, scenario
from store.analysis.families import FAMILIES, read_rules
from store.analysis.ingest import expand
from store.analysis.lanes import events_of, lanes
from store.analysis.rank import RankView
from store.analysis.report import FileReport, Options, analyze_file, merge, views_of
from store.analysis.text import render
from store.analysis.worker import analyze_apart

MAX_FILES: Final = 4096
MAX_STEPS: Final = 200
MAX_EVENTS: Final = 2000
_LOOKED_AT: Final = 50_000
_WORTH_A_PROCESS: Final = 8 << 20
_FAR_APART: Final = 3
"""Captures that together span this many times the longest one were not taken together."""


def read_frame(stream: BinaryIO) -> Any:
    """The next frame, or None at the end."""
    head = stream.read(8)
    return orjson.loads(stream.read(int.from_bytes(head, "big"))) if len(head) == 8 else None


def frame(value: Any) -> bytes:
    """A value as it goes over the pipe."""
    body = orjson.dumps(value)
    return len(body).to_bytes(8, "big") + body


class Captures:
    """The files of one profile: their report at once, their timelines when they are first asked for."""

    def __init__(self, files: list[Path], options: Options, say: Any) -> None:
        self.files = files
        self._say = say
        self._options = options
        self._views: list[RankView] | None = None
        self.reports: list[FileReport] = []
        self.report: dict[str, Any] = {}

    def analyse(self) -> dict[str, Any]:
        """What the screen shows first: the report, families by file, kind and step, and the span of the timeline."""
        for done, report in enumerate(self._each()):
            self.reports.append(report)
            self._say({"done": done + 1, "of": len(self.files), "file": report.file})
        self.report = merge(self.reports)
        ranks = self.report["ranks"]
        starts, why = self._starts()
        ends = [start + rank["wall_ns"] for start, rank in zip(starts, ranks, strict=True)]
        return {
            "report": self.report,
            "tables": {
                "files": [_column(report.file, report.ranks) for report in self.reports if report.ranks],
                "kinds": _kinds(ranks),
                "steps": [_steps(rank) for rank in ranks],
            },
            "diff": self._diff(),
            "starts_ns": starts,
            "span_ns": max(ends, default=0),
            "clock": why,
            "text": render(self.report, 60),
        }

    def _each(self) -> Any:
        count = min(len(self.files), os.cpu_count() or 1)
        if count < 2 or sum(_size(file) for file in self.files) < _WORTH_A_PROCESS:
            yield from (analyze_file(file, self._options) for file in self.files)
            return
        with ThreadPoolExecutor(count) as pool:
            yield from pool.map(analyze_apart, self.files, [self._options] * len(self.files))

    def _diff(self) -> dict[str, Any] | None:
        """What changed from the first file to the second, where there are just two."""
        found = [report for report in self.reports if report.ranks]
        if len(found) != 2:
            return None
        # `merge` writes the waiting into the ranks, which is another one for each file by itself.
        a, b = (merge([replace(report, ranks=[dict(rank) for rank in report.ranks])]) for report in found)
        return diff(a, b)

    def _starts(self) -> tuple[list[int], str]:
        """Where each rank's first event lies on the common time axis, and on what that axis rests."""
        ranks = self.report["ranks"]
        if len(ranks) < 2:
            return [0] * len(ranks), ""
        alone = [0] * len(ranks)
        if any(rank["base_ns"] is None for rank in ranks):
            return alone, "clocks not known: each rank from its own first event"
        walls = [rank["start_ns"] + rank["base_ns"] for rank in ranks]
        first = min(walls)
        span = max(wall + rank["wall_ns"] for wall, rank in zip(walls, ranks, strict=True)) - first
        if span > _FAR_APART * max(rank["wall_ns"] for rank in ranks):
            return alone, "not taken together: each rank from its own first event"
        return [wall - first for wall in walls], "on the wall clock of the captures"

    def views(self) -> list[RankView]:
        """The timelines in the order of the report's ranks."""
        if self._views is None:
            where: dict[int, RankView] = {}
            for path, report in zip(self.files, self.reports, strict=True):
                if report.ranks:
                    seen = views_of(path, self._options)[0]
                    where |= {id(rank): view for rank, view in zip(report.ranks, seen, strict=False)}
            self._views = [where[id(rank)] for rank in self.report["ranks"]]
        return self._views

    def lanes(self, start: int, end: int, width: int) -> list[dict[str, Any]]:
        """Every rank's device and streams in `[start, end)` of the common axis, as `width` cells each."""
        found = []
        for at, (seen, shift) in enumerate(zip(self.views(), self._shifts(), strict=True)):
            made = {lane.name: lane for lane in lanes(seen, start - shift, end - shift, width)}
            streams = np.unique(seen.timeline.events.stream).tolist()
            first, last = (edge + shift for edge in seen.algebra.span())
            for name in ("device", *(f"stream {stream}" for stream in streams)):
                lane = made.get(name)
                found.append(
                    {
                        "rank": at,
                        "name": name,
                        "family": [-1] * width if lane is None else lane.family.tolist(),
                        "share": [0.0] * width if lane is None else lane.share.round(4).tolist(),
                        "first_ns": first,
                        "last_ns": last,
                    }
                )
        return found

    def events(self, ask: dict[str, Any]) -> dict[str, Any]:
        """The events of a name, family, stream or window, in time order; `more` if some were not looked at."""
        rows: list[dict[str, Any]] = []
        more = False
        for at, (seen, shift) in enumerate(zip(self.views(), self._shifts(), strict=True)):
            if ask["rank"] is not None and ask["rank"] != at:
                continue
            mine = events_of(
                seen,
                family=ask["family"],
                name=ask["name"],
                start=None if ask["start"] is None else ask["start"] - shift,
                end=None if ask["end"] is None else ask["end"] - shift,
                length=ask["length"],
                after_gap=ask["after_gap"],
                gap_call=ask["gap_call"],
                limit=_LOOKED_AT,
            )
            more |= len(mine) == _LOOKED_AT
            if ask["stream"] is not None:
                mine = [row for row in mine if f"stream {row['stream']}" == ask["stream"]]
            rows += [row | {"rank": at, "at_ns": row["start_ns"] + shift} for row in mine]
        rows.sort(key=lambda row: row["at_ns"])
        return {"rows": rows[:MAX_EVENTS], "found": len(rows), "more": more}

    def _shifts(self) -> list[int]:
        starts, _ = self._starts()
        return [at - rank["start_ns"] for at, rank in zip(starts, self.report["ranks"], strict=True)]


def _column(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One column of the table: `scenario`, and the share of the copies that ran alone beside it."""
    kinds = [row for rank in rows for row in rank["kinds"].values() if row["tokens"]] or rows
    wall = sum(row["wall_ns"] for row in kinds)
    alone = sum(row["copy_exposed_ns"] for row in kinds)
    return scenario(name, {"ranks": rows}) | {"copy_share": alone / wall if wall else None}


def _named(rank: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
    return {key: rank[key] for key in ("rank", "file", "device")} | {"kinds": kinds}


def _kinds(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A column for each kind of step, over all ranks."""
    found = []
    for kind in dict.fromkeys(kind for rank in ranks for kind in rank["kinds"]):
        mine = [(rank, rank["kinds"][kind]) for rank in ranks if kind in rank["kinds"]]
        rows = [row | _named(rank, {kind: row} if row["tokens"] else {}) for rank, row in mine]
        found.append(_column(kind, rows))
    return found


def _steps(rank: dict[str, Any]) -> list[dict[str, Any]]:
    """A column for each of the first steps of a rank."""
    return [_column(f"{step['kind']} {step['index']}", [step | _named(rank, {})]) for step in rank["steps"][:MAX_STEPS]]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _listen(asked: SimpleQueue[dict[str, Any]]) -> None:
    """Hand on what is asked; when nobody can ask any more, end this process and those it started."""
    while (ask := read_frame(sys.stdin.buffer)) is not None:
        asked.put(ask)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def main() -> int:
    """The process: the files to read come first, then questions about them."""
    asked: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()

    def say(value: Any) -> None:
        sys.stdout.buffer.write(frame(value))
        sys.stdout.buffer.flush()

    first = asked.get()
    try:
        files = list(expand([Path(name) for name in first["files"]]))[:MAX_FILES]
        rules = read_rules(Path(first["families"]).read_text("utf-8").splitlines()) if first["families"] else ()
    except (OSError, ValueError) as error:
        say({"failed": str(error)})
        return 1
    captures = Captures(files, Options(tuple(rules), columns=first["columns"]), say)
    say({"profile": captures.analyse(), "families": list(FAMILIES)})
    while True:
        ask = asked.get()
        say(captures.lanes(ask["start"], ask["end"], ask["width"]) if ask["ask"] == "lanes" else captures.events(ask))


if __name__ == "__main__":
    sys.exit(main())
