"""The `analyze` document: captures in, one JSON-ready report out (DESIGN section 4 fixes its shape and meaning)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import Any

from store.analysis.chains import chains
from store.analysis.collectives import RankCollectives, across_ranks, collective_rows, distinct_ranks, rank_collectives
from store.analysis.families import Rule
from store.analysis.hostside import host_side, launch_delay
from store.analysis.ingest import expand, ingest
from store.analysis.kinds import by_kind
from store.analysis.rank import kernel_rows, no_communication, rank_json, view
from store.analysis.steps import find_steps, left_out, steps_json

SCHEMA = 1
_WORTH_A_PROCESS = 8 << 20
_MAX_FILES = 4096


@dataclass
class FileReport:
    """What one file came to: per rank an entry and its kernels, and what the merge over ranks needs."""

    file: str
    ranks: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[list[dict[str, Any]]] = field(default_factory=list)
    collectives: list[RankCollectives] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def analyze_file(path: Path, extra: tuple[Rule, ...] = ()) -> FileReport:
    """Read and analyse one capture; never raises for its content."""
    found = ingest(path)
    report = FileReport(path.name, problems=list(found.problems))
    for timeline in found.timelines:
        if not len(timeline.events):
            continue
        seen = view(timeline, extra)
        if warning := no_communication(seen):
            report.problems.append(warning)
        steps = find_steps(seen)
        if said := left_out(seen, steps):
            report.problems.append(said)
        mine = rank_collectives(seen)
        shown = steps_json(seen, steps)
        report.ranks.append(
            rank_json(seen)
            | {
                "collectives": collective_rows(mine),
                "host": host_side(seen) | {"launch_delay": launch_delay(seen)},
                "chains": chains(seen),
                "kinds": by_kind(seen, steps, shown),
                "steps": shown,
            }
        )
        report.kernels.append(kernel_rows(seen))
        report.collectives.append(mine)
    return report


def analyze(paths: Sequence[Path], *, extra: tuple[Rule, ...] = (), workers: int | None = None) -> dict[str, Any]:
    """The whole report: a process a file when several are big; a file that cannot be used costs a sentence."""
    files = list(expand(paths))[:_MAX_FILES]
    return merge(_each(files, extra, workers))


def _each(files: list[Path], extra: tuple[Rule, ...], workers: int | None) -> list[FileReport]:
    big = sum(_size(file) for file in files) > _WORTH_A_PROCESS
    count = min(len(files), workers or cpu_count() or 1)
    if not big or count < 2:
        return [analyze_file(file, extra) for file in files]
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        return list(pool.map(analyze_file, files, [extra] * len(files)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def merge(files: Sequence[FileReport]) -> dict[str, Any]:
    """Ranks of all files into one document."""
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
    problems += _duplicates(ranks) + together.problems
    rows = sorted(table.values(), key=lambda row: (-row["total_ns"], row["name"]))
    return {
        "schema": SCHEMA,
        "ranks": ranks,
        "kernels": [_kernel(row) for row in rows if not row["copy"]],
        "copies": [_kernel(row) for row in rows if row["copy"]],
        "unmatched": [_kernel(row) for row in rows if not row["matched"]],
        "stragglers": together.stragglers,
        "collectives": together.operations,
        "problems": problems,
    }


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
