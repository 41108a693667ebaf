"""Prefixes that launchers put before a line: docker, compose, kubectl, mpirun, srun, Ray, vLLM, torchrun.

`peel` takes them off outermost first, in a loop, since they nest:
`2026-..Z (EngineCore pid=9) (RayWorkerProc pid=8) text`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_STAMP = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d))\s+")
_COMPOSE = re.compile(r"([A-Za-z0-9][\w.-]{0,80}?)\s*\| ")
_KUBECTL = re.compile(r"\[pod/([\w.-]{1,120})(?:/[\w.-]{1,120})?\] ?")
_MPIRUN = re.compile(r"\[\d+,(\d+)\]<std(?:out|err|diag)>: ?")
_SRUN = re.compile(r"(\d{1,5}): (?=\S)")
_HYDRA = re.compile(r"\[(\d{1,6})\] (?=[\w.-]{1,255}:\d{1,10}:\d{1,10} \[)")  # mpiexec -l, only before an NCCL line
_TORCHRUN = re.compile(r"\[(?:rank|default)(\d+)\]:? ?")
_PROCESS = re.compile(r"\(([A-Za-z_][\w:.-]{0,80}(?: [A-Z]{2,3}\d+)*) (?:pid=(\d+))(?:, ip=([^\s,)]{1,64}))?\) ?")
_RANKS = re.compile(r"(?:^|[_ -])(DP|TP|EP|PP|CP|DCP|PCP)(\d+)")
_REPEATED = re.compile(r" ?\[repeated (\d{1,6})x across (?:the )?cluster\](?: \(Ray dedup.*)?$")

_STARTS: Final = frozenset("([0123456789")


@dataclass(slots=True)
class Prefix:
    """What the peeled prefixes said; None where they did not.

    received  the collector's time (docker -t, kubectl --timestamps), text
    node      host or ip, when a launcher names it
    role      process role, e.g. EngineCore_DP0, RayWorkerWrapper
    ranks     e.g. {"tp": 1, "dp": 0}
    repeated  how many ranks printed this line (Ray folds equal lines), at least 1
    """

    received: str | None = None
    node: str | None = None
    role: str | None = None
    pid: int | None = None
    rank: int | None = None
    ranks: dict[str, int] | None = None
    repeated: int = 1


def ranks_of(text: str) -> dict[str, int] | None:
    """`Worker_DP0_TP3` -> {"dp": 0, "tp": 3}; None when the text names no rank."""
    found = {kind.lower(): int(value[:9]) for kind, value in _RANKS.findall(text)}
    return found or None


def global_rank(ranks: dict[str, int] | None) -> int | None:
    """The rank that a set of group ranks stands for: the TP rank, unless pipeline stages hide the rest."""
    if not ranks or "pp" in ranks:
        return None
    return ranks.get("tp")


_SEEN: Final[dict[str, Prefix]] = {}  # one process prints the same prefix a million times
_MAX_SEEN: Final = 4096


def peel(line: str) -> tuple[Prefix | None, str]:
    """Prefix (None when the line has none; do not change it) and what is left of the line."""
    if line[:1] == "(" and (end := line.find(") ") + 2) > 1:
        known = _SEEN.get(line[:end])
        if known is not None and line[end : end + 1].isupper() and not line.endswith("]"):
            return known, line[end:]
    prefix, rest = _peeled(line)
    if prefix is not None and rest[:1].isupper() and line[:1] == "(" and line.find(") ") + 2 == len(line) - len(rest):
        if len(_SEEN) >= _MAX_SEEN:
            _SEEN.clear()
        _SEEN[line[: len(line) - len(rest)]] = prefix
    return prefix, rest


def _peeled(line: str) -> tuple[Prefix | None, str]:
    repeated = None
    if line.endswith("cluster]") or "[repeated " in line:
        repeated = _REPEATED.search(line)
        if repeated:
            line = line[: repeated.start()]
    prefix: Prefix | None = None
    if repeated:
        prefix = Prefix(repeated=int(repeated[1]))
    for _ in range(8):
        if not line or (line[0] not in _STARTS and (prefix is not None or "| " not in line[:100])):
            break
        before = line
        if prefix is None:
            prefix = Prefix()
        line = _peel_one(line, prefix)
        if line == before:
            break
    if prefix == _EMPTY:
        prefix = None
    return prefix, line


_EMPTY: Final = Prefix()


def _peel_one(line: str, prefix: Prefix) -> str:
    """The line without its outermost prefix; what the prefix says goes into `prefix`."""
    first = line[0]
    if first == "(":
        match = _PROCESS.match(line)
        if match:
            prefix.role = match[1]
            prefix.pid = int(match[2][:18])
            if match[3]:
                prefix.node = match[3]
            ranks = ranks_of(match[1])
            if ranks:
                prefix.ranks = {**(prefix.ranks or {}), **ranks}
                prefix.rank = global_rank(prefix.ranks) if prefix.rank is None else prefix.rank
            return line[match.end() :]
    elif first == "[":
        for pattern in (_MPIRUN, _TORCHRUN, _HYDRA):
            match = pattern.match(line)
            if match:
                prefix.rank = int(match[1][:9])
                return line[match.end() :]
        match = _KUBECTL.match(line)
        if match:
            prefix.node = match[1]
            return line[match.end() :]
    elif first.isdigit():
        match = _STAMP.match(line)
        if match:
            prefix.received = match[1]
            return line[match.end() :]
        match = _SRUN.match(line)
        if match:
            prefix.rank = int(match[1])
            return line[match.end() :]
    match = _COMPOSE.match(line)
    if match:
        prefix.node = prefix.node or match[1]
        return line[match.end() :]
    return line
