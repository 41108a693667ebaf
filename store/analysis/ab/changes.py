"""What differs between two sides, variable by variable: intended, derived from that, known noise, or undeclared."""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Variables = dict[str, str]

# These differ between two starts of the very same thing.
NOISE = re.compile(
    r"(^|[._])(boot_id|pid|uptime\w*|timestamp|start(ed)?_(time|at)|random_seed|seed|temperature\w*|power\w*|"
    r"memory_used|mem_used|utili[sz]ation\w*|load_avg|free_\w+|\w*_free|container_id|hostname_suffix|node_rank)$"
    r"|^(before|after|measured)[.]|^deployment[.]name$|^clock[.]|^server[.](.*[._])?(last_\w+|internal_states?\b.*|\w*port)$"
)
# Sizes that an engine works out by itself from whatever was set.
WORKED_OUT = re.compile(r"(kv|mem|cache|token|graph|block|capacity|pool|weights?|budget)", re.IGNORECASE)
WHOLE_IMAGE = re.compile(r"^(deployment[.])?(image|python|command|launcher)$")
FROM_IMAGE = re.compile(r"^(package|image|container|server|engine|nccl|cuda|torch|lib|backend)[.]")
_QUANT = re.compile(
    r"[-_.](fp8|fp4|nvfp4|mxfp4|int8|int4|w\d+a\d+(kv\d+)?|awq|gptq|gguf|q\d\w*|bnb|marlin|bf16|fp16|dynamic|static|"
    r"\d+bit|channel|block|quantized)(?=$|[-_.])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Change:
    """One variable that differs; `kind`: intended | derived | noise | undeclared. None: that side does not have it."""

    name: str
    a: str | None
    b: str | None
    kind: str


def variables_of(rows: Iterable[Mapping[str, Any]]) -> Variables:
    """Rows of `ab_variables` as one value a name: flags one by one, nodes and ranks told apart only if they differ."""
    seen: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["name"] == "deployment.flags":
            for flag, value in flags_of(row["value"] or "").items():
                seen.setdefault(f"flags.{flag}", {})[""] = value
            continue
        where = " ".join(str(w) for w in (row["node"], row["rank"]) if w is not None)
        seen.setdefault(row["name"], {})[where] = row["value"] or ""
    return {name: _joined(values) for name, values in seen.items()}


def _joined(values: Mapping[str, str]) -> str:
    distinct = set(values.values())
    if len(distinct) == 1:
        return distinct.pop()
    return ", ".join(f"{where}: {value}" for where, value in sorted(values.items()))


def flags_of(text: str) -> Variables:
    """Flags of a command line, each with its value(s); a bare one is `on`."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    out: Variables = {}
    flag = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            flag, equals, value = word.partition("=")
            out[flag] = value if equals else "on"
        elif flag:
            out[flag] = word if out[flag] == "on" else f"{out[flag]} {word}"
    return out


def changes_of(a: Variables, b: Variables, declared: Sequence[str]) -> list[Change]:
    """Every variable that differs, undeclared ones first. `declared`: names, or patterns with `*`."""
    names = [n for n in sorted(a.keys() | b.keys()) if a.get(n) != b.get(n)]
    kinds = {n: "intended" for n in names if _declared(n, declared)}
    meant = list(kinds)
    for name in names:
        if name not in kinds:
            noisy = NOISE.search(name) is not None
            kinds[name] = "noise" if noisy else "derived" if _derived(name, a, b, meant) else "undeclared"
    order = ("undeclared", "intended", "derived", "noise")
    return sorted((Change(n, a.get(n), b.get(n), kinds[n]) for n in names), key=lambda c: (order.index(c.kind), c.name))


def _declared(name: str, declared: Sequence[str]) -> bool:
    short = name.removeprefix("deployment.")
    return any(fnmatch.fnmatchcase(n, p) for p in declared for n in (name, short))


def _derived(name: str, a: Variables, b: Variables, meant: Sequence[str]) -> bool:
    """Whether the difference follows from one that was meant."""
    if any(WHOLE_IMAGE.match(m) for m in meant) and FROM_IMAGE.match(name):
        return True
    serverside = name.startswith(("server.", "engine.", "memory.", "backend."))
    if not (serverside and meant):
        return False
    word = _plain(name.rsplit(".", 1)[-1])
    for m in meant:
        leaf = _plain(m.rsplit(".", 1)[-1])
        if word == leaf or leaf in word or word in leaf:
            return True
        if (a.get(name), b.get(name)) == (a.get(m), b.get(m)):
            return True
    return WORKED_OUT.search(word) is not None


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_")


def base_model(name: str) -> str:
    """A model's name without folder and quantisation: two quantisations of one model have the same."""
    name = name.rstrip("/").rsplit("/", 1)[-1]
    while (less := _QUANT.sub("", name)) != name:
        name = less
    return name.lower()
