"""Kernel families: which part of a model a device kernel belongs to, judged by its name.

families.rules is an ordered table, first match wins, tried on the kernel's own name (without namespace and template
arguments), then on its qualified name, and on everything in it only where the own name is a mere wrapper such as
`cutlass::device_kernel` or `elementwise_kernel`: template arguments name other people's namespaces.
Policy: fused norm/activation + quantisation is Norm/Activation; rotary embedding, KV-cache writes and linear attention
are MLA/Attention; router, gating, sorting, grouped GEMM and finalising are MoE; dispatch and combine across ranks, and
all-reduce fused with anything, are Communication; slot mapping, metadata and plain arithmetic are Other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Final

COMMUNICATION: Final = "Communication"
GEMM: Final = "GEMM"
ATTENTION: Final = "MLA/Attention"
MEMORY: Final = "Memory/Copy"
MOE: Final = "MoE"
INDEXER: Final = "NSA/DSA Indexer"
NORM: Final = "Norm/Activation"
OTHER: Final = "Other"
QUANTIZATION: Final = "Quantization"
SAMPLING: Final = "Sampling"

FAMILIES: Final = (COMMUNICATION, GEMM, ATTENTION, MOE, INDEXER, NORM, QUANTIZATION, SAMPLING, MEMORY, OTHER)


@dataclass(frozen=True)
class Rule:
    """family: one of FAMILIES. pattern: case-insensitive, searched in the lower-cased name."""

    family: str
    pattern: re.Pattern[str]


def read_rules(lines: Iterable[str]) -> tuple[Rule, ...]:
    """A user's rules: `FAMILY<tab>regular expression` a line, `#` for remarks. ValueError names the bad line."""
    rules = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        family, tab, pattern = line.strip().partition("\t")
        if not tab or family not in FAMILIES:
            raise ValueError(f"line {number}: expected FAMILY<tab>PATTERN with a family of {', '.join(FAMILIES)}")
        try:
            rules.append(Rule(family, re.compile(pattern.strip(), re.IGNORECASE)))
        except re.error as error:
            raise ValueError(f"line {number}: {error}") from error
    return tuple(rules)


def _built_in() -> dict[str, tuple[Rule, ...]]:
    """The rules of families.rules by section."""
    text = files("store.analysis").joinpath("families.rules").read_text("utf-8")
    parts = re.split(r"^\[(\w+)\]\n", text, flags=re.MULTILINE)
    return {name: read_rules(body.splitlines()) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


_BUILT_IN: Final = _built_in()
WHOLE_NAME: Final = _BUILT_IN["anywhere"]
"""Rules for the whole text of a name."""
RULES: Final = _BUILT_IN["name"]
"""The ordered table for a kernel's own name."""
KNOWN_OTHER: Final = _BUILT_IN["rest"]
"""What comes after it: names that are known and belong to no family."""
FUNCTORS: Final = _BUILT_IN["functor"]
"""What makes an element-wise or reducing wrapper more than arithmetic, read from the functor it is given."""

_WRAPPER: Final = re.compile(
    r"^(?:kernel\d*|device_kernel|kentry\w*|run|main|entry|cutlass_kernel|global_kernel|kernel_cutlass_\w+|enable_\w+|"
    r"kernel_wrapper|generic_kernel|_?kernel_impl|invoke|universal_kernel|launch\w*)$"
)
_POINTWISE: Final = re.compile(
    r"elementwise_\w*kernel|elementwise_kernel|^reduce_kernel|multi_tensor_apply_kernel|^(?:unary|binary)_\w*kernel|transform_kernel"
)
# What Inductor names after the operators around it: a pointwise or reducing kernel holds none of these itself.
_INDUCTOR: Final = re.compile(r"^triton_(?:poi|red|per)_fused_")
_NEIGHBOURS: Final = re.compile(
    r"_(?:(?:add|b|badd|scaled_)?mm|convolution|linear|fmha_(?:v\d_)?(?:fwd|bwd)|scaled_dot_product_[a-z]+_attention|"
    r"(?<=norm_)moe_forward(?:_shared)?|all_reduce|wait_tensor)(?=_)"
)
_ANONYMOUS: Final = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}|\(anonymous class\)")
_MANGLED_PART: Final = re.compile(r"(\d{1,3})(?=[A-Za-z_])")


@dataclass(frozen=True)
class Match:
    """The family of a name and the rule that gave it; rule None: nothing matched."""

    family: str
    rule: Rule | None


def family_of(name: str, extra: tuple[Rule, ...] = ()) -> str:
    """The family of a kernel, copy or fill by its name. extra: the user's rules, tried first on the whole name."""
    return match(name, extra).family


@lru_cache(maxsize=1 << 16)
def match(name: str, extra: tuple[Rule, ...] = ()) -> Match:
    """The family of a name and why."""
    whole = name.strip().lower()
    own, qualified = _own_name(name)
    if _INDUCTOR.match(own):
        own = qualified = _NEIGHBOURS.sub("", own)
    for rules, text in ((extra, whole), (WHOLE_NAME, whole)):
        if found := _first(rules, text):
            return found
    if _POINTWISE.search(own):
        return _first(FUNCTORS, whole) or _first(_NAMED, own) or Match(OTHER, None)
    if _WRAPPER.match(own):
        inside = _first(RULES, whole.replace("flashinfer", ""))
        if inside:
            return inside
        return Match(GEMM, _CUTLASS) if "cutlass" in whole or whole.startswith("void ck") else Match(OTHER, None)
    return _first(_NAMED, own) or _first(_NAMED, qualified) or Match(OTHER, None)


_NAMED: Final = RULES + KNOWN_OTHER
_CUTLASS: Final = Rule(GEMM, re.compile("cutlass"))


def _first(rules: tuple[Rule, ...], text: str) -> Match | None:
    for rule in rules:
        if rule.pattern.search(text):
            return Match(rule.family, rule)
    return None


def _own_name(name: str) -> tuple[str, str]:
    """A function's own name and its qualified name, lower case, without return type and arguments."""
    text = name.strip()
    if text.startswith("_Z"):
        parts = _mangled_parts(text)
        return parts[-1], "::".join(parts)
    text = _ANONYMOUS.sub("anon", text)
    qualified = _without_arguments(text).split()
    last = qualified[-1].lower().removesuffix(".kd") if qualified else ""
    last = last.replace("flashinfer::", "").replace("flashinfer_", "")
    return last.rsplit("::", 1)[-1] or last, last


def _without_arguments(text: str) -> str:
    """Everything before the parameter list, with template arguments cut out."""
    kept: list[str] = []
    angle = paren = 0
    for mark in text:
        if angle and mark == "(":
            paren += 1
        elif angle and mark == ")":
            paren = max(0, paren - 1)
        elif paren:
            continue
        elif mark == "<":
            angle += 1
        elif mark == ">":
            angle = max(0, angle - 1)
        elif not angle:
            if mark in "([" and kept:
                break
            kept.append(mark)
    return "".join(kept)


def _mangled_parts(text: str) -> list[str]:
    """The identifiers of an Itanium-mangled function name (the nested name, not its arguments), lower case."""
    at = 3 if text.startswith("_ZN") else 2
    while at < len(text) and text[at] in "KVLSt":
        at += 1
    parts = []
    while found := _MANGLED_PART.match(text, at):
        size = int(found.group(1))
        begin = found.end()
        parts.append(text[begin : begin + size].lower())
        at = begin + size
    return [part for part in parts if not part.startswith("_global__n_")] or [text.lower()]
