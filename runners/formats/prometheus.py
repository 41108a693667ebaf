"""/metrics of vLLM and SGLang (Prometheus text format) -> one row of engine columns, by a table of aliases.

Names move between versions and a gateway turns `:` into `_`; the table lists each meaning's names, newest first, and
the first one present is read (never two of them added). Gauges that every rank repeats: maximum over
tp/pp/ep ranks, then sum over data-parallel ranks and other labels. A metric that is absent is null, not 0.
Text format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Event, Item, Kind, Row, Skip, Value, columns
from runners.formats.prometheus_names import BY_LABEL, ENGINE_COLUMNS, HISTOGRAMS, MAPPED, SCALARS, Scalar

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{(.*)\})?\s*([^\s{}]+)(?:\s+(-?\d+))?\Z")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|\Z)')
_ESCAPES: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_RANK_LABELS: Final = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "ep_rank", "pid", "worker_addr"})
_SPECIAL: Final = {"+Inf": float("inf"), "Inf": float("inf"), "-Inf": float("-inf"), "NaN": float("nan")}


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the exposition. `value` may be nan or infinite."""

    name: str
    labels: dict[str, str]
    value: float


def parse_sample(line: str) -> Sample | Skip:
    """One sample line (no comment, not blank)."""
    match = _SAMPLE.match(line)
    if match is None:
        return SKIP
    value = _SPECIAL.get(match[3])
    if value is None:
        try:
            value = float(match[3])
        except ValueError:
            return SKIP
        if "_" in match[3]:  # Python reads 1_000, the format does not
            return SKIP
    labels: dict[str, str] = {}
    body = match[2] or ""
    at = 0
    while at < len(body):
        label = _LABEL.match(body, at)
        if label is None:
            return SKIP
        raw = label[2]
        labels[label[1]] = re.sub(r'\\[\\"n]', lambda found: _ESCAPES[found[0]], raw) if "\\" in raw else raw
        at = label.end()
    return Sample(match[1], labels, value)


def scan(lines: Iterable[str], buckets: bool = False) -> Iterator[Sample | Skip]:
    """Samples of a text; histogram buckets and `_created` times only on request (they are nine tenths of a page)."""
    for line in lines:
        line = line.strip()
        if not line or line[0] == "#":
            continue
        if not buckets and ("_bucket{" in line or "_created" in line):
            continue
        yield parse_sample(line) if len(line) <= text.MAX_LINE else SKIP


def _canonical(name: str) -> str | None:
    """`vllm:x` and the gateway's `vllm_x` -> "x"; None for a name of neither engine."""
    for engine in ("vllm", "sglang"):
        if name.startswith(engine) and name[len(engine) : len(engine) + 1] in (":", "_"):
            return name[len(engine) + 1 :]
    return None


@dataclass(slots=True)
class _Family:
    """The series of one name."""

    series: list[tuple[dict[str, str], float]]

    def value(self, scalar: Scalar) -> float | None:
        """The name's value over all ranks; None when no series of finite value is left."""
        groups: dict[tuple[tuple[str, str], ...], float] = {}
        for labels, value in self.series:
            if value - value != 0 or any(labels.get(key) != wanted for key, wanted in scalar.where):
                continue
            if scalar.positive_only and value == 0:
                continue
            key = tuple(sorted((name, text) for name, text in labels.items() if name not in _RANK_LABELS))
            groups[key] = max(groups.get(key, value), value)
        if not groups:
            return None
        return max(groups.values()) if scalar.how == "max" else sum(groups.values())


def _whole(value: float | None, as_int: bool) -> int | float | None:
    if value is None:
        return None
    return int(value) if as_int and value == int(value) else value


def engine_row(samples: Iterable[Sample], blocks: bool = False) -> Row:
    """One row of ENGINE_COLUMNS. `blocks`: the prefix counters count blocks (vLLM 0.8), as their HELP line says."""
    families: dict[str, _Family] = {}
    engine: str | None = None
    models: list[str] = []
    for sample in samples:
        name = _canonical(sample.name)
        if name is None:
            continue
        engine = engine or ("vllm" if sample.name.startswith("vllm") else "sglang")
        families.setdefault(name, _Family([])).series.append((sample.labels, sample.value))
        model = sample.labels.get("model_name") or sample.labels.get("name")
        if model and model not in models:
            models.append(model)
    row: Row = {"engine": engine, "model": models[0] if models else None}
    for scalar in SCALARS:
        family = next((families[name] for name in scalar.names if name in families), None)
        row[scalar.column] = _whole(family.value(scalar), scalar.whole) if family else None
    counter = Scalar("", ())
    for column, names in HISTOGRAMS.items():
        for part in ("sum", "count"):
            family = next((families[f"{name}_{part}"] for name in names if f"{name}_{part}" in families), None)
            row[f"{column}_{part}"] = _whole(family.value(counter), part == "count") if family else None
    _derived(row, families)
    row["prefix_unit"] = ("blocks" if blocks else "tokens") if row["prefix_queries_total"] is not None else None
    row["unmapped"] = sorted(name for name in families if name not in MAPPED)
    return row


def _derived(row: Row, families: dict[str, _Family]) -> None:
    """What hides in labels: the KV pool of vLLM, acceptance by position, finish reasons, stages."""
    info = families.get("cache_config_info")
    if info and row["kv_total_tokens"] is None:
        labels = info.series[0][0]
        size = text.integer(labels.get("kv_cache_size_tokens", ""))
        blocks, block = text.integer(labels.get("num_gpu_blocks", "")), text.integer(labels.get("block_size", ""))
        row["kv_total_tokens"] = size or (blocks * block if blocks and block else None)
    for column, (name, label) in BY_LABEL.items():
        row[column] = _by_label(families.get(name), label)


def _by_label(family: _Family | None, label: str) -> dict[str, Value] | None:
    if family is None:
        return None
    found: dict[str, Value] = {}
    for key in dict.fromkeys(labels[label] for labels, _ in family.series if label in labels):
        value = family.value(Scalar("", (), where=((label, key),)))
        if value is not None:
            found[key] = _whole(value, True)
    return found


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """One row for the page; an event `no_data` when it holds no engine metric (HTTP 200 with an empty body)."""
    blocks = False
    samples: list[Sample] = []

    def watched() -> Iterator[str]:
        nonlocal blocks
        for line in text.cleaned(lines):
            if line.startswith("# HELP") and "prefix_cache_queries" in line and "queried blocks" in line:
                blocks = True
            yield line

    for found in scan(watched()):
        if isinstance(found, Skip):
            yield found
        else:
            samples.append(found)
    row = engine_row(samples, blocks)
    if row["engine"] is None:
        yield Event("no_data", detail={"reason": "no vllm or sglang metric in the page", "samples": len(samples)})
    else:
        yield row


def parse_page(page: str) -> Row | None:
    """The row of one scrape, None when the page holds no engine metric. Bad lines are ignored here."""
    samples = [found for found in scan(page.splitlines()) if isinstance(found, Sample)]
    blocks = "queried blocks" in page
    row = engine_row(samples, blocks)
    return None if row["engine"] is None else row


def sniff(head: str) -> int:
    """Sample or HELP lines of either engine."""
    if re.search(r"^(?:# (?:HELP|TYPE) )?(?:vllm|sglang)[:_]\w+(?:\{[^\n]*\})?(?: |$)", head, re.MULTILINE):
        return 95
    return 50 if re.search(r"^# TYPE [a-zA-Z_:][\w:]* (?:counter|gauge|histogram|summary|untyped)$", head, re.M) else 0


KIND: Final = Kind(
    "engine_metrics",
    "/metrics of vLLM or SGLang",
    columns(ENGINE_COLUMNS),
    sniff,
    parse,
    events=("no_data",),
)
