"""Engine steps: what the annotations call a step, told apart into prefill, decode and mixed, with the device work it
launched. Work is given to a step by correlation (the call that launched it lies in the step's range on the host), not
by time overlap, since replays run after the range has ended. A step's window is from the first start to the last end of
that work; its split clips everything the device did to that window.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from store.analysis.rank import RankView, parts_json
from store.analysis.timeline import KERNEL, NO_ID, Int, Range, column

PREFILL, DECODE, MIXED, STEP, REPLAY = "prefill", "decode", "mixed", "step", "graph_replay"

# vLLM: execute_<tokens>_context_<requests>(sq<tokens>sk...)_generation_<requests>(...); or: execute_context_1(888_...)
_VLLM: Final = re.compile(r"execute(?:_(\d+))?_context_(\d+)\(([^)]*)\)_generation_(\d+)\(([^)]*)\)")
# SGLang: step[EXTEND bs=15 toks=15360], step[DECODE bs=32]
_SGLANG: Final = re.compile(r"step\[\s*([A-Z_]+)([^\]]*)\]")
_SGLANG_MODES: Final = {
    "EXTEND": PREFILL,
    "SPLIT_PREFILL": PREFILL,
    "DECODE": DECODE,
    "TARGET_VERIFY": DECODE,
    "DRAFT_EXTEND": STEP,
    "MIXED": MIXED,
}
_PROFILER: Final = re.compile(r"^ProfilerStep#?\s*(\d+)")
_NUMBERED: Final = re.compile(r"^(?:step|iter(?:ation)?|forward[ _]step|engine[ _]step)[ _#:.-]*(\d+)\b", re.I)
_WORDS: Final = (
    (MIXED, re.compile(r"^(?:[\w.]*[ _:./])?mixed(?:[ _:./]|$)", re.I)),
    (PREFILL, re.compile(r"^(?:[\w.]*[ _:./])?(?:prefill|forward_extend|extend)(?:[ _:./(\[]|$)", re.I)),
    (DECODE, re.compile(r"^(?:[\w.]*[ _:./])?(?:decode|forward_decode)(?:[ _:./(\[]|$)", re.I)),
)
_INNER_WORK: Final = re.compile(r"attn|attention|kernel|layer|::|##|aten|nccl", re.I)
# What only one kind of step runs, where the range's name does not say which kind it is.
_DECODE_KERNEL: Final = re.compile(
    r"decode|splitkv|paged_attention|mla_dec|attention_3d|fwd_(?:grouped_)?kernel_stage1|masked_multihead|mmha|recurrent"
    r"|top_?k_?per_?row_?decode|paged_mqa_logits",
    re.I,
)
_PREFILL_KERNEL: Final = re.compile(
    r"prefill|extend|context_?fmha|flash_fwd_kernel|(?<!paged_)mqa_logits|chunk_(?:fwd|scan|state)",
    re.I,
)
_TRAINING_KERNEL: Final = re.compile(r"bwd|backward|wgrad|dgrad|adam|optimizer", re.I)
_MAX_STEPS: Final = 20_000


@dataclass(frozen=True)
class Meaning:
    """What is known of a step: kind, tokens worked on, requests in prefill and in decode (None: not said), and whether
    the annotation told the kind or the kernels did."""

    kind: str
    tokens: int | None = None
    prefill_requests: int | None = None
    decode_requests: int | None = None
    told_by: str = "annotation"


@dataclass(frozen=True)
class Step:
    """One step. range: on the host. rows: the device events it launched. calls: its launching calls."""

    index: int
    meaning: Meaning
    range: Range
    rows: Int
    calls: Int


def meaning_of(name: str) -> Meaning | None:
    """What a range's name says about a step, None if it is not the name of one."""
    if found := _VLLM.search(name):
        total, contexts, prefilled, generations, generated = found.groups()
        prefill, decode = int(contexts), int(generations)
        kind = MIXED if prefill and decode else DECODE if decode else PREFILL
        tokens = int(total) if total else _first_number(prefilled) + _first_number(generated)
        return Meaning(kind, tokens or None, prefill, decode)
    if found := _SGLANG.search(name):
        mode, rest = found.groups()
        kind = _SGLANG_MODES.get(mode, STEP)
        size, tokens_said = re.search(r"bs=(\d+)", rest), re.search(r"toks=(\d+)", rest)
        batch = int(size.group(1)) if size else None
        tokens_done = int(tokens_said.group(1)) if tokens_said else batch if kind == DECODE else None
        return Meaning(kind, tokens_done, batch if kind == PREFILL else None, batch if kind == DECODE else None)
    if _PROFILER.match(name) or _NUMBERED.match(name):
        return Meaning(STEP)
    if len(name) < 80 and not _INNER_WORK.search(name):
        return next((Meaning(kind) for kind, pattern in _WORDS if pattern.search(name)), None)
    return None


def _first_number(text: str) -> int:
    found = re.search(r"\d+", text)
    return int(found.group()) if found else 0


def find_steps(seen: RankView) -> list[Step]:
    """The steps of a rank in time order. Without annotations each graph replay is one (kind graph_replay)."""
    timeline = seen.timeline
    named = [(r, m) for r in timeline.ranges if (m := meaning_of(r.name)) is not None]
    kept = _outermost(named)[:_MAX_STEPS]
    if not kept:
        return _replays(seen)
    process = [thread.rsplit("/", 1)[0] for thread in timeline.threads]
    pids = {pid: i for i, pid in enumerate(dict.fromkeys(process))}
    of_thread = column([pids[pid] for pid in process])
    calls = timeline.calls
    call_pid = of_thread[calls.thread] if len(calls) else column()
    step_of_call = np.full(len(calls), NO_ID, dtype=np.int64)
    for pid in set(call_pid.tolist()):
        mine = [i for i, (r, _) in enumerate(kept) if of_thread[r.thread] == pid]
        if not mine:
            continue
        starts = column([kept[i][0].start for i in mine])
        ends = column([kept[i][0].end for i in mine])
        rows = np.flatnonzero(call_pid == pid)
        at = np.searchsorted(starts, calls.start[rows], side="right") - 1
        inside = (at >= 0) & (calls.start[rows] < ends[np.maximum(at, 0)])
        step_of_call[rows[inside]] = column(mine)[at[inside]]
    launched = seen.launch_of != NO_ID
    step_of_event = np.where(launched, step_of_call[seen.launch_of], NO_ID) if len(calls) else seen.launch_of
    rows_of = _grouped(step_of_event, len(kept))
    launches_of = _grouped(np.where(_is_launch(seen), step_of_call, NO_ID), len(kept))
    steps = [
        Step(0, meaning, where, rows, launches)
        for (where, meaning), rows, launches in zip(kept, rows_of, launches_of, strict=True)
        if len(rows)
    ]
    return [Step(i, _told(seen, s), s.range, s.rows, s.calls) for i, s in enumerate(steps)]


def _told(seen: RankView, step: Step) -> Meaning:
    """The meaning of a step whose name leaves its kind open, from the kernels that only one kind runs."""
    if step.meaning.kind not in (STEP, REPLAY):
        return step.meaning
    names = [seen.timeline.names[i] for i in np.unique(seen.timeline.events.name[step.rows]).tolist()]
    if any(_TRAINING_KERNEL.search(name) for name in names):
        return step.meaning
    prefill = any(_PREFILL_KERNEL.search(name) for name in names)
    decode = any(_DECODE_KERNEL.search(name) for name in names)
    if not prefill and not decode:
        return step.meaning
    kind = MIXED if prefill and decode else DECODE if decode else PREFILL
    return replace(step.meaning, kind=kind, told_by="kernels")


def _is_launch(seen: RankView) -> np.ndarray[Any, np.dtype[np.bool_]]:
    flags = np.zeros(len(seen.timeline.calls), dtype=bool)
    flags[seen.launch_calls] = True
    return flags


def _grouped(step: Int, count: int) -> list[Int]:
    order = np.argsort(step, kind="stable")
    edges = np.searchsorted(step[order], np.arange(count + 1))
    return [order[a:b] for a, b in pairwise(edges)]


def _outermost(named: list[tuple[Range, Meaning]]) -> list[tuple[Range, Meaning]]:
    """Without steps inside steps of the same process time; a plain numbered step yields to what is told inside it."""
    telling = [item for item in named if item[1].kind != STEP]
    kept: list[tuple[Range, Meaning]] = []
    for where, meaning in sorted(telling, key=lambda item: (item[0].start, -item[0].end)):
        if not kept or where.start >= kept[-1][0].end or where.thread != kept[-1][0].thread:
            kept.append((where, meaning))
    starts = [where.start for where, _ in kept]
    plain: list[tuple[Range, Meaning]] = []
    for where, meaning in sorted(
        (i for i in named if i[1].kind == STEP), key=lambda item: (item[0].start, -item[0].end)
    ):
        at = bisect_left(starts, where.end) - 1
        told = at >= 0 and kept[at][0].end > where.start
        if not told and not (plain and where.thread == plain[-1][0].thread and where.start < plain[-1][0].end):
            plain.append((where, meaning))
    return sorted(kept + plain, key=lambda item: item[0].start)


def _replays(seen: RankView) -> list[Step]:
    """Each graph launch with what it launched, where nothing better marks the steps."""
    timeline = seen.timeline
    graph = [i for i in seen.launch_calls.tolist() if "graph" in timeline.names[timeline.calls.name[i]].lower()]
    steps: list[Step] = []
    order = np.argsort(seen.launch_of, kind="stable")
    sorted_launch = seen.launch_of[order]
    for call in graph[:_MAX_STEPS]:
        a, b = np.searchsorted(sorted_launch, [call, call + 1])
        if b > a:
            calls = timeline.calls
            where = Range(
                timeline.names[calls.name[call]], int(calls.start[call]), int(calls.end[call]), int(calls.thread[call])
            )
            steps.append(Step(len(steps), Meaning(REPLAY, told_by="graph"), where, order[a:b], column([call])))
    return [replace(step, meaning=_told(seen, step)) for step in steps]


def from_graph(seen: RankView) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which device events a graph launched: the capture says so, or the call that launched them does."""
    timeline = seen.timeline
    by_name = np.array(["graphlaunch" in name.lower() for name in timeline.names], dtype=bool)
    graph = timeline.events.graph.copy()
    known = seen.launch_of != NO_ID
    graph[known] |= by_name[timeline.calls.name[seen.launch_of[known]]]
    return graph


def step_json(seen: RankView, step: Step, graph: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[str, Any]:
    """One entry of `steps`."""
    events = seen.timeline.events
    start, end = int(events.start[step.rows].min()), int(events.end[step.rows].max())
    kernels = step.rows[events.kind[step.rows] == KERNEL]
    return {
        "kind": step.meaning.kind,
        "index": step.index,
        "name": step.range.name[:200],
        "told_by": step.meaning.told_by,
        **parts_json(seen.algebra.parts(start, end)),
        "cumulative_ns": seen.algebra.cumulative(step.rows),
        "start_ns": start,
        "host_start_ns": step.range.start,
        "host_ns": step.range.end - step.range.start,
        "tokens": step.meaning.tokens,
        "prefill_requests": step.meaning.prefill_requests,
        "decode_requests": step.meaning.decode_requests,
        "kernels": len(kernels),
        "graph_kernels": int(graph[kernels].sum()),
        "launches": len(np.unique(seen.timeline.calls.correlation[step.calls])),
    }


def steps_json(seen: RankView, steps: list[Step]) -> list[dict[str, Any]]:
    """All steps of a rank."""
    graph = from_graph(seen)
    return [step_json(seen, step, graph) for step in steps]


def left_out(seen: RankView, steps: list[Step]) -> str | None:
    """A sentence on the device work that belongs to no step."""
    outside = len(seen.timeline.events) - sum(len(step.rows) for step in steps)
    if not steps or not outside:
        return None
    unknown = int((seen.launch_of == NO_ID).sum())
    return (
        f"{outside} of {len(seen.timeline.events)} device events belong to no step ({unknown} events have no launch "
        "in the capture); the rank's breakdown holds them, and a step's window holds what of them ran inside it"
    )
