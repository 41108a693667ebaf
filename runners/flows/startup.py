"""What hangs in a start that does not come to its end: the stage, the ranks in it, and their nodes.

The stages come from the engines' own lines and NCCL's (store/queries/startup_marks.sql). A rank that has not even begun
where others have is found by set difference: it prints nothing, so nothing else names it (vllm-project/vllm#53894).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

STAGES = ("process", "rendezvous", "nccl", "weights", "kv", "graphs", "warmup")
TITLES = {
    "process": "the start of the process",
    "rendezvous": "the rendezvous",
    "nccl": "NCCL init",
    "weights": "loading weights",
    "kv": "the KV cache",
    "graphs": "graph capture",
    "warmup": "warm-up",
}

LOOK_EVERY_S = 10.0
STANDS_S = 60.0


class Watch:
    """Whether a start makes progress: any new begin or end of a stage of any rank is one."""

    def __init__(self) -> None:
        self._next = 0.0
        self._seen = -1
        self._since = 0.0

    def due(self, now_s: float) -> bool:
        """Whether it is time to look again."""
        if now_s < self._next:
            return False
        self._next = now_s + LOOK_EVERY_S
        return True

    def stands(self, rows: Sequence[Mapping[str, Any]], now_s: float) -> bool:
        """Whether nothing has moved for STANDS_S, or for twice the usual time of the stage that is on."""
        marks = len(rows) + sum(r["end_s"] is not None for r in rows)
        if marks != self._seen:
            self._seen, self._since = marks, now_s
        usual = max((r["typical_s"] or 0.0 for r in rows if r["end_s"] is None), default=0.0)
        return now_s - self._since > max(STANDS_S, 2 * usual)


def hanging(rows: Sequence[Mapping[str, Any]], nodes: Sequence[str], ranks: int) -> str:
    """Words for the rows of startup_ranks: where the start stands, and who holds it up.

    Args:
        nodes: names in rank order.
        ranks: processes with a GPU over all nodes; spread evenly.
    """
    per_node = max(1, ranks // max(1, len(nodes)))
    where = {r: nodes[min(r // per_node, len(nodes) - 1)] for r in range(ranks)}
    for stage in reversed(STAGES):
        here = [r for r in rows if r["stage"] == stage and r["rank"] is not None]
        begun = {int(r["rank"]) for r in here}
        ended = {int(r["rank"]) for r in here if r["end_s"] is not None}
        if not begun:
            continue
        late = begun - ended
        # Only where more ranks speak than one a node does silence mean something.
        missing = set(where) - begun if len(begun) > len(nodes) else set()
        typical = max((r["typical_s"] for r in here if r["typical_s"] is not None), default=None)
        usual = "" if typical is None else f"; usually over after {typical:.0f} s"
        title = TITLES[stage]
        if missing:
            return (
                f"hangs in {title}: {_named(missing, where)} never began it, {len(begun)} of {ranks} ranks have{usual}"
            )
        if late and ended:
            return f"hangs in {title}: {_named(late, where)} not through it, {len(ended)} of {ranks} ranks are{usual}"
        if late:
            return f"hangs in {title}: all {len(late)} ranks wait there{usual}"
        break
    return _by_node(rows, nodes)


def _by_node(rows: Sequence[Mapping[str, Any]], nodes: Sequence[str]) -> str:
    """Where each node stands, when its ranks do not speak for themselves."""
    stands: dict[str, tuple[int, bool]] = {}
    for name in nodes:
        mine = [r for r in rows if r["node"] == name]
        last = max((STAGES.index(r["stage"]) for r in mine), default=-1)
        done = any(STAGES.index(r["stage"]) == last and r["end_s"] is not None for r in mine)
        stands[name] = (last, done)
    if not stands or all(last < 0 for last, _ in stands.values()):
        return "no rank has said anything of its start"
    words: dict[str, list[str]] = defaultdict(list)
    for name, (last, done) in stands.items():
        if last < 0:
            words["not started"].append(name)
        else:
            words[("after " if done else "in ") + TITLES[STAGES[last]]].append(name)
    low = min(stands.values())
    behind = [n for n, s in stands.items() if s == low]
    said = "; ".join(f"{', '.join(names)}: {what}" for what, names in words.items())
    tail = f"; {', '.join(behind)} is behind" if len(behind) < len(stands) else ""
    return f"stands still ({said}{tail})"


def _named(ranks: set[int], where: Mapping[int, str]) -> str:
    """`rank 11 on node7`, `ranks 8-15 on node7`."""
    groups: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(ranks):
        groups[where.get(rank, "an unknown node")].append(rank)
    return ", ".join(f"rank{'s' * (len(r) > 1)} {_spans(r)} on {node}" for node, r in groups.items())


def _spans(ranks: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
