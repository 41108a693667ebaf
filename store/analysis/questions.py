"""The ten timeline questions of the experiment plan, each answered from the report or said to be out of its reach."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import numpy as np

from store.analysis.families import ATTENTION, COMMUNICATION, INDEXER, MOE
from store.analysis.text import CAUSES, clean, duration, kernel_name, share

Report = dict[str, Any]
Answer = tuple[str | None, str | None, dict[str, Any]]
"""The answer or None, the reason why not or None, and the numbers behind it."""

_SAME_END_NS: Final = 1_000_000


_REPEATED: Final = "several files are captures of the same rank, taken apart: give one file a rank"


def questions(report: Report) -> list[dict[str, Any]]:
    """Ten rows of question, answer, because (set when the capture cannot tell) and numbers."""
    rows = []
    for question, ask in _ASKED:
        answer, because, numbers = (None, "no rank could be analysed", {}) if not report["ranks"] else ask(report)
        rows.append({"question": question, "answer": answer, "because": because, "numbers": numbers})
    return rows


def _kinds(report: Report, *wanted: str) -> list[dict[str, Any]]:
    return [rank["kinds"][kind] for rank in report["ranks"] for kind in wanted if kind in rank["kinds"]]


def _no_steps(kinds: str) -> str:
    return f"it marks no {kinds} step (no engine annotation, NVTX range or graph replay that says so)"


def _top_kernels(report: Report) -> Answer:
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in ("prefill", "decode", "mixed"):
        sums: dict[str, int] = {}
        for row in _kinds(report, kind):
            for kernel in row["top_kernels"]:
                sums[kernel["name"]] = sums.get(kernel["name"], 0) + kernel["total_ns"]
        best = sorted(sums.items(), key=lambda item: -item[1])[:5]
        if best:
            found[kind] = [{"name": name, "total_ns": ns} for name, ns in best]
    if not found:
        return None, _no_steps("prefill or decode"), {}
    said = [
        f"{kind}: " + ", ".join(f"{kernel_name(k['name'], 48)} {duration(k['total_ns'])}" for k in top[:3])
        for kind, top in found.items()
    ]
    said += [f"{kind}: no such step in this capture" for kind in ("prefill", "decode") if kind not in found]
    return "; ".join(said), None, {"top_kernels": found}


def _exposed(report: Report) -> Answer:
    wall = sum(rank["wall_ns"] for rank in report["ranks"])
    exposed = sum(rank["communication_exposed_ns"] for rank in report["ranks"])
    if not any(rank["cumulative_ns"].get(COMMUNICATION) for rank in report["ranks"]):
        return _no_communication(report)
    waits = [rank["communication_wait_ns"] for rank in report["ranks"] if rank["communication_wait_ns"] is not None]
    said = (
        f"{duration(exposed)} of {duration(wall)} rank time ({share(exposed, wall)}) is communication without compute"
    )
    if waits:
        said += f"; {duration(sum(waits))} of it is waiting for later ranks"
    by_kind = {
        kind: sum(r["communication_exposed_ns"] for r in rows) / max(sum(r["wall_ns"] for r in rows), 1)
        for kind in ("prefill", "decode", "mixed")
        if (rows := _kinds(report, kind))
    }
    if by_kind:
        said += "; by step: " + ", ".join(f"{kind} {100 * part:.1f} %" for kind, part in by_kind.items())
    return said, None, {"exposed_ns": exposed, "wall_ns": wall, "share_by_kind": by_kind}


def _no_communication(report: Report) -> Answer:
    world = max((rank["world_size"] or 0) for rank in report["ranks"])
    if world == 1:
        return "none: the capture is of a single rank", None, {}
    return None, "no communication kernel was recognised in it", {}


def _overlap(report: Report) -> Answer:
    busy = sum(rank["communication_busy_ns"] for rank in report["ranks"])
    if not busy:
        return _no_communication(report)
    hidden = sum(rank["overlap_ns"] for rank in report["ranks"])
    return (
        f"{share(hidden, busy)} of the communication time runs beside compute",
        None,
        {"overlap_ns": hidden, "communication_ns": busy},
    )


def _holes(report: Report) -> Answer:
    causes: dict[str, int] = {}
    for rank in report["ranks"]:
        for cause, ns in rank["host"]["idle_by_cause_ns"].items():
            causes[cause] = causes.get(cause, 0) + ns
    idle, wall = sum(causes.values()), sum(rank["wall_ns"] for rank in report["ranks"])
    numbers = {"idle_ns": idle, "wall_ns": wall, "by_cause_ns": causes}
    if not idle:
        return "no: the devices were never idle", None, numbers
    if causes["unknown"] == idle:
        return (
            None,
            f"the devices were idle for {share(idle, wall)}, but the calls that launched the work are not in it",
            numbers,
        )
    host = causes["sync"] + causes["call"] + causes["host_code"] + causes["launch_call"]
    worst = max(causes, key=lambda cause: causes[cause])
    return (
        f"the devices were idle for {share(idle, wall)} of the time; {share(host, idle)} of that is the host's "
        f"(synchronising {share(causes['sync'], idle)}, outside calls {share(causes['host_code'], idle)}, launching "
        f"{share(causes['launch_call'], idle)}); the largest part: {CAUSES[worst]}",
        None,
        numbers,
    )


def _graphs(report: Report) -> Answer:
    rows = _kinds(report, "decode", "graph_replay")
    if not rows:
        return None, _no_steps("decode"), {}
    kernels = sum(row["kernels"] for row in rows)
    inside = sum(row["graph_kernels"] for row in rows)
    batches = sorted({size for row in rows for size in row["batches"]})
    bare = sorted(
        {
            step["tokens"]
            for rank in report["ranks"]
            for step in rank["steps"]
            if step["kind"] == "decode"
            and step["tokens"]
            and step["kernels"]
            and step["graph_kernels"] < 0.5 * step["kernels"]
        }
    )
    said = f"{share(inside, kernels)} of the decode kernels come from graph replays"
    said += f" (batch sizes seen: {', '.join(map(str, batches[:12]))})" if batches else ""
    said += f"; without a graph: batch {', '.join(map(str, bare[:12]))}" if bare else ""
    return (
        said,
        None,
        {"graph_share": inside / kernels if kernels else None, "batches": batches, "batches_without_graph": bare},
    )


def _repeated(ranks: list[dict[str, Any]]) -> bool:
    """Whether a rank comes twice: captures of different moments, which say nothing across ranks."""
    known = [rank["rank"] for rank in ranks if rank["rank"] is not None]
    return len(set(known)) < len(known)


def _of_how_many(report: Report) -> str:
    """A remark on the ranks that were not captured, nothing where all were."""
    world = max((rank["world_size"] or 0) for rank in report["ranks"])
    known = len({rank["rank"] for rank in report["ranks"]})
    return (
        f" (of the {known} ranks captured; the other {world - known} of {world} are not in it)" if world > known else ""
    )


def _end_together(report: Report) -> Answer:
    ranks = [rank for rank in report["ranks"] if rank["steps"] and rank["base_ns"] is not None]
    if _repeated(ranks):
        return None, _REPEATED, {}
    if len(ranks) < 2:
        return None, "it holds steps of fewer than two ranks on a known clock", {}
    count = min(len(rank["steps"]) for rank in ranks)
    uneven = any(len(rank["steps"]) != count for rank in ranks)
    ends = [
        [rank["steps"][i]["start_ns"] + rank["steps"][i]["wall_ns"] + rank["base_ns"] for rank in ranks]
        for i in range(count)
    ]
    spread = [max(row) - min(row) for row in ends]
    middle, worst = int(np.median(spread)), max(spread)
    verdict = "yes" if worst < _SAME_END_NS else "not always" if middle < _SAME_END_NS else "no"
    said = (
        f"{verdict}: over {count} step{'s' if count > 1 else ''} the last rank ends {duration(middle)} after the "
        f"first in the median, {duration(worst)} at worst"
    )
    if uneven:
        said += "; the ranks hold different numbers of steps, matched from the first"
    said += _of_how_many(report)
    return said, None, {"ranks": len(ranks), "steps": count, "median_spread_ns": middle, "max_spread_ns": worst}


def _slow_rank(report: Report) -> Answer:
    rows = report["stragglers"]
    if not rows:
        return None, "arrivals at collectives need two ranks or more with matching collectives", {}
    fixed = [row for row in rows if row["fixed"]]
    top = fixed[0] if fixed else rows[0]
    said = (
        f"rank {top['rank']} arrives last at {top['last']} of {top['collectives']} collectives "
        f"({share(top['share'], 1)}), {duration(top['median_late_ns'])} after the next one in the median"
    )
    offset = next((r["clock_offset_ns"] for r in report["ranks"] if r["rank"] == top["rank"]), None)
    if offset is not None and abs(offset) > top["median_late_ns"]:
        said += f"; but its clock may be off by {duration(abs(offset))}, which is more than that"
    said += _of_how_many(report)
    return ("yes: " if fixed else "no fixed one; most often ") + said, None, {"stragglers": rows[:8]}


def _experts(report: Report) -> Answer:
    times = {
        f"{rank['rank']}@{rank['file']}": rank["cumulative_ns"][MOE]
        for rank in report["ranks"]
        if rank["cumulative_ns"].get(MOE)
    }
    if _repeated(report["ranks"]):
        return None, _REPEATED, {}
    if not times:
        return None, "no MoE kernel was recognised in it (a dense model, or names no rule knows)", {}
    if len(times) < 2:
        return (
            None,
            "token counts per expert are not in a timeline, and comparing MoE kernel time needs two ranks or more",
            {},
        )
    mean, high = sum(times.values()) / len(times), max(times.values())
    who = max(times, key=lambda name: times[name])
    return (
        f"by kernel time only: the busiest rank ({clean(who, 60)}) spends {high / mean:.2f} times the mean in MoE "
        "kernels; token counts are not in a timeline",
        None,
        {"moe_ns": times, "max_over_mean": high / mean},
    )


def _indexer(report: Report) -> Answer:
    index = sum(rank["cumulative_ns"].get(INDEXER, 0) for rank in report["ranks"])
    attention = sum(rank["cumulative_ns"].get(ATTENTION, 0) for rank in report["ranks"])
    numbers = {"indexer_ns": index, "attention_ns": attention}
    if not index:
        return None, "no indexer kernel was recognised in it (a dense-attention model, or names no rule knows)", numbers
    return (
        f"the indexer takes {duration(index)} against {duration(attention)} of attention itself: "
        f"{share(index, index + attention)} of the two together",
        None,
        numbers,
    )


def _prefill_delay(report: Report) -> Answer:
    found: list[dict[str, Any]] = []
    plain: list[int] = []
    for rank in report["ranks"]:
        steps = sorted(
            (s for s in rank["steps"] if s["kind"] in ("prefill", "decode", "mixed")), key=lambda s: s["start_ns"]
        )
        for before, after in pairwise(steps):
            if before["kind"] == after["kind"] == "decode":
                plain.append(after["start_ns"] + after["wall_ns"] - before["start_ns"] - before["wall_ns"])
        decodes = [i for i, s in enumerate(steps) if s["kind"] == "decode"]
        for i, j in pairwise(decodes):
            if j - i > 1:
                between = steps[i + 1 : j]
                begin, end = steps[i]["start_ns"] + steps[i]["wall_ns"], steps[j]["start_ns"]
                busy = sum(max(0, min(s["start_ns"] + s["wall_ns"], end) - max(s["start_ns"], begin)) for s in between)
                idle = sum(s["idle_ns"] for s in between)
                found.append(
                    {"wait_ns": end - begin, "prefill_ns": busy, "idle_in_prefill_ns": idle, "steps": len(between)}
                )
    mixed = [s["wall_ns"] for rank in report["ranks"] for s in rank["steps"] if s["kind"] == "mixed"]
    alone = [s["wall_ns"] for rank in report["ranks"] for s in rank["steps"] if s["kind"] == "decode"]
    if not found and not (mixed and alone):
        return None, "it holds no decode steps with a prefill or mixed step among them", {}
    said = []
    if found:
        wait, busy = int(np.median([f["wait_ns"] for f in found])), int(np.median([f["prefill_ns"] for f in found]))
        said.append(
            f"decode waits {duration(wait)} (median of {len(found)}) while a prefill step holds the device, "
            f"{share(busy, wait)} of it inside that step"
        )
        if plain:
            said.append(f"between two decode steps in a row it is {duration(float(np.median(plain)))} from end to end")
    if mixed and alone:
        said.append(
            f"a mixed step lasts {duration(float(np.median(mixed)))} against {duration(float(np.median(alone)))} of a "
            "decode step: decode tokens in it wait for the prefill chunk"
        )
    return "; ".join(said), None, {"delays": found[:50], "mixed_ns": mixed[:50]}


_ASKED: Final[tuple[tuple[str, Callable[[Report], Answer]], ...]] = (
    ("Which kernels lead in prefill and in decode?", _top_kernels),
    ("How much communication is exposed on the critical path?", _exposed),
    ("How much communication does compute hide?", _overlap),
    ("Are there host or synchronisation holes between layers?", _holes),
    ("Do graphs cover the common decode batches?", _graphs),
    ("Do the ranks end together?", _end_together),
    ("Is there a fixed slow rank?", _slow_rank),
    ("Are expert tokens out of balance?", _experts),
    ("What does the indexer cost inside sparse attention?", _indexer),
    ("Why are decode kernels delayed when a long prefill arrives?", _prefill_delay),
)
