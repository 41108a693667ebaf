"""What an engine says in its log of the parts it chose: backends, kernels, caches, the NCCL that it loaded.

What was asked for is often `auto`; the log alone says what runs. Pure functions from lines to names and values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats.text import clean

MOST_OTHER = 40
MOST_CHARACTERS = 64 << 10

_ATTENTION: Final = (
    r"[Uu]sing (?:AttentionBackendEnum\.)?([A-Za-z_]\w*(?: Attention)?) (?:attention )?backend(?: on V1| out of|\.|$)"
)
# (name, pattern): the first group is the value, without one the matched text. vLLM 0.8-0.33, SGLang 0.4-0.5 and RCCL.
_PATTERNS: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("nccl.loaded", r"vLLM is using nccl==([\d.]+)"),
        ("nccl.loaded", r"\b[NR]CCL version ?:? ?([\d.]+\S*)"),
        ("backend.moe", r"[Uu]sing ['\"]?([\w -]{2,40}?)['\"]? (?:\w+ )?MoE (?:backend|kernels?)"),
        ("backend.moe", r"[Uu]sing ([\w -]{2,40}?) backend for (?:\w+ )?MoE"),
        ("backend.moe", r"MoE runner backend[:= ]+['\"]?(\w+)"),
        ("backend.all_to_all", r"[Uu]sing ([\w -]{2,40}?) all2all manager"),
        ("backend.indexer", r"(?i)using (.{2,60}?(?:indexer|index)[\w ]{0,40})"),
        ("backend.sparse_attention", r"(?i)\b(?:nsa|dsa) backends?\b.{0,20}?((?:prefill|decode)\W.{2,80})"),
        ("backend.mla", r"Using (\w+ MLA (?:prefill|decode)) backend"),
        ("backend.attention", r"Attention backend not explicitly specified\. Use (\w+) backend"),
        ("backend.attention", _ATTENTION),
        ("backend.attention_version", r"Using FlashAttention version (\d+)"),
        ("backend.gemm", r"(DeepGEMM (?:E8M0 )?(?:is )?(?:enabled|disabled)[\w .]{0,60})"),
        ("backend.gemm", r"[Uu]sing ([\w -]{2,40}?) (?:backend )?for (?:\w+ ){0,3}(?:GEMM|linear)"),
        ("backend.all_reduce", r"(?i)(custom[ _]all-?reduce (?:is )?(?:enabled|disabled)[^.\n]{0,120})"),
        ("backend.all_reduce", r"(?i)(setup custom allreduce failed[^.\n]{0,120})"),
        ("backend.sampling", r"(?i)using (\w+) for top-p & top-k sampling"),
        ("engine.chunked_prefill", r"Chunked prefill is (enabled with max_num_batched_tokens=\d+|enabled|disabled)"),
        ("engine.prefix_cache", r"(?i)(?:automatic )?prefix caching is (enabled|disabled)"),
        ("engine.cuda_graph", r"(?i)(cuda ?graphs? (?:is|are) disabled[^.\n]{0,80})"),
        ("engine.speculation", r"(?i)(speculative (?:decoding|model)[^.\n]{3,120})"),
    )
)  # fmt: skip
_OTHER = re.compile(
    r"(?i)\b(?:using|use|enabl\w+|disabl\w+|select\w+)\b.{0,80}\b(?:backend|kernels?|all-?reduce|gemm|moe|attention|"
    r"indexer|cuda ?graph|quantization|dtype)\b"
)
_CONFIG = re.compile(r"Initializing a V\d LLM engine \(v(?P<version>[^)]+)\) with config: (?P<config>.+)")


def chosen(lines: Iterable[str]) -> dict[str, list[str]]:
    """Name -> distinct values in order of appearance, e.g. {"backend.attention": ["FLASH_ATTN"]}.

    `engine.said`: lines about backends that no pattern reads, at most MOST_OTHER of them, without measured figures.
    """
    found: dict[str, list[str]] = {}
    other: list[str] = []
    for raw in lines:
        line = raw[:MOST_CHARACTERS]
        for name, value in _read(line):
            values = found.setdefault(name, [])
            if value not in values and len(values) < 20:
                values.append(value)
            break
        else:
            text = re.sub(r"\d+\.\d+", "#", re.sub(r"^.*?\] ", "", clean(line[:400])).strip())
            dump = len(line) >= 2000 or "non-default args" in line
            if not dump and len(other) < MOST_OTHER and _OTHER.search(line) and text not in other:
                other.append(text)
    return {**found, **({"engine.said": other} if other else {})}


def _read(line: str) -> Iterator[tuple[str, str]]:
    if len(line) > 2000 or "non-default args" in line:  # a dump of all arguments speaks of every backend and means none
        return
    for name, pattern in _PATTERNS:
        if match := pattern.search(line):
            yield name, (match[1] if match.groups() else match[0]).strip(" .'\"")


def engine_config(lines: Iterable[str]) -> dict[str, str]:
    """vLLM's own statement of its settings, `Initializing a V1 LLM engine (v0.18.1) with config: a=1, b=X(c=2)`.

    Top-level names only; a nested value stays as it is written.
    """
    for raw in lines:
        if match := _CONFIG.search(raw[:MOST_CHARACTERS]):
            return {"version": match["version"], **dict(_pairs(match["config"]))}
    return {}


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """`a=1, b=X(c=2, d=[3])` -> (a, 1), (b, X(c=2, d=[3])). Unbalanced text ends the reading."""
    depth, start, quote = 0, 0, ""
    for at, char in enumerate(f"{text},"):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            name, eq, value = text[start:at].strip().partition("=")
            if eq and re.fullmatch(r"[A-Za-z_]\w{0,80}", name):
                yield name, value.strip("'\"")
            start = at + 1
