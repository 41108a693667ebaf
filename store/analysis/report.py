"""The `analyze` document: captures in, one JSON-ready report out (DESIGN section 4 fixes its shape and meaning)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from os import cpu_count
from pathlib import Path
from typing import Any

from store.analysis.chains import chains
from store.analysis.collectives import RankCollectives, across_ranks, collective_rows, distinct_ranks, rank_collectives
from store.analysis.columns import WORTH_IT, load, save
from store.analysis.compare import four_shares
from store.analysis.families import Rule
from store.analysis.hostside import host_side, launch_delay
from store.analysis.ingest import expand, ingest
from store.analysis.kinds import by_kind
from store.analysis.positions import positions
from store.analysis.questions import questions
from store.analysis.rank import RankView, kernel_rows, no_communication, rank_json, view
from store.analysis.steps import find_steps, left_out, steps_json
from store.analysis.window import window_json
from store.analysis.worker import analyze_apart

SCHEMA = 1
_WORTH_A_PROCESS = 8 << 20
_MAX_FILES = 4096


@dataclass(frozen=True)
class Options:
    """extra: the user's family rules. window: ns since a rank's first device event, split on top of the whole.
    columns: keep columnar files beside big traces and use those that are there. workers: processes at most."""

    extra: tuple[Rule, ...] = ()
    window: tuple[int, int] | None = None
    columns: bool = False
    workers: int | None = None


@dataclass
class FileReport:
    """What one file came to: per rank an entry and its kernels, and what the merge over ranks needs."""

    file: str
    ranks: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[list[dict[str, Any]]] = field(default_factory=list)
    collectives: list[RankCollectives] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def views_of(path: Path, options: Options) -> tuple[list[RankView], list[str]]:
    """The ranks of one capture ready for analysis, and what was wrong with it. Never raises for its content."""
    found = load(path) if options.columns else None
    if found is None:
        found = ingest(path)
        if options.columns and _size(path) >= WORTH_IT:
            save(path, found)
    return [view(t, options.extra) for t in found.timelines if len(t.events)], list(found.problems)


def analyze_file(path: Path, options: Options) -> FileReport:
    """Read and analyse one capture; never raises for its content."""
    views, problems = views_of(path, options)
    report = FileReport(path.name, problems=problems)
    for seen in views:
        steps = find_steps(seen)
        report.problems += [said for said in (no_communication(seen), left_out(seen, steps)) if said]
        mine = rank_collectives(seen)
        shown = steps_json(seen, steps)
        rank = rank_json(seen) | {
            "collectives": collective_rows(mine),
            "collective_positions": positions(seen, steps),
            "host": host_side(seen) | {"launch_delay": launch_delay(seen)},
            "chains": chains(seen),
            "kinds": by_kind(seen, steps, shown),
            "steps": shown,
        }
        if options.window:
            rank["window"] = window_json(seen, *options.window)
        report.ranks.append(rank)
        report.kernels.append(kernel_rows(seen))
        report.collectives.append(mine)
    return report


def analyze(paths: Sequence[Path], options: Options | None = None) -> dict[str, Any]:
    """The whole report: a process a file when several are big; a file that cannot be used costs a sentence."""
    files = list(expand(paths))[:_MAX_FILES]
    return merge(_each(files, options or Options()))


def _each(files: list[Path], options: Options) -> list[FileReport]:
    big = sum(_size(file) for file in files) > _WORTH_A_PROCESS
    count = min(len(files), options.workers or cpu_count() or 1)
    if not big or count < 2:
        return [analyze_file(file, options) for file in files]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(analyze_apart, files, [options] * len(files)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def merge(files: Sequence[FileReport]) -> dict[str, Any]:
    """Ranks of all files into one document."""
    counted_up = _count_up(files)
    ranks: list[dict[str, Any]] = []
    table: dict[tuple[str, bool], dict[str, Any]] = {}
    problems: list[str] = []
    for file in files:
        problems += [f"{file.file}: {text}" for text in file.problems]
        ranks += file.ranks
        for rows in file.kernels:
            for row in rows:
                known = table.setdefault((row["name"], row["copy"]), {**row, "count": 0, "total_ns": 0})
                known["count"] += row["count"]
                known["total_ns"] += row["total_ns"]
    collectives = [mine for file in files for mine in file.collectives]
    chosen = distinct_ranks(collectives)
    together = across_ranks([collectives[i] for i in chosen])
    for i, wait, total, offset in zip(
        chosen, together.wait_ns, together.wait_total_ns, together.clock_offset_ns, strict=True
    ):
        ranks[i] |= {"communication_wait_ns": wait, "wait_total_ns": total, "clock_offset_ns": offset}
    ranks.sort(key=lambda rank: (rank["rank"] is None, rank["rank"] or 0))
    problems += counted_up + _duplicates(ranks) + together.problems
    rows = sorted(table.values(), key=lambda row: (-row["total_ns"], row["name"]))
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "ranks": ranks,
        "kernels": [_kernel(row) for row in rows if not row["copy"]],
        "copies": [_kernel(row) for row in rows if row["copy"]],
        "unmatched": [_kernel(row) for row in rows if not row["matched"]],
        "stragglers": together.stragglers,
        "collectives": together.operations,
        "problems": list(dict.fromkeys(problems)),
    }
    report["shares"] = four_shares(report)
    report["questions"] = questions(report)
    return report


def _count_up(files: Sequence[FileReport]) -> list[str]:
    """Number the ranks of several nsys exports through: each knows only the devices of its own node."""
    exports = [file for file in files if any(rank["source"] == "nsys" for rank in file.ranks)]
    numbers = [rank["rank"] for file in exports for rank in file.ranks]
    if len(exports) < 2 or len(set(numbers)) == len(numbers):
        return []
    number = 0
    for file in exports:
        for i, rank in enumerate(file.ranks):
            rank |= {"rank": number, "world_size": len(numbers)}
            file.collectives[i] = replace(file.collectives[i], rank=number, world_size=len(numbers))
            number += 1
    names = ", ".join(file.file for file in exports[:4])
    return [f"nsys exports do not say their ranks: they are counted up in the order given ({names})"]


def _kernel(row: dict[str, Any]) -> dict[str, Any]:
    mean = round(row["total_ns"] / row["count"])
    return {key: row[key] for key in ("name", "family", "count", "total_ns")} | {"mean_ns": mean}


def _duplicates(ranks: list[dict[str, Any]]) -> list[str]:
    by_rank: dict[tuple[int, int | None], list[str]] = {}
    for rank in ranks:
        if rank["rank"] is not None:
            by_rank.setdefault((rank["rank"], rank["device"]), []).append(rank["file"])
    return [
        f"rank {rank} comes {len(files)} times ({', '.join(files[:4])}); each file is analysed by itself"
        for (rank, _), files in sorted(by_rank.items(), key=str)
        if len(files) > 1
    ]
