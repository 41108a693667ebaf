"""A running server as manifest variables: what it answers of itself, what its log says that it chose, what it took."""

from __future__ import annotations

from typing import Any

from runners.engines.logged import chosen, engine_config
from runners.flows.manifest import flatten, of_values
from store.database import Store
from store.queries import call
from store.records import Life, Variable


def of_server(life: Life, answer: Any, node: str) -> list[Variable]:
    """The server's own answer (/server_info, /version) as `server.*`."""
    return flatten("server", answer, life, node)


def of_log(store: Store, life: Life) -> list[Variable]:
    """`backend.*`, `nccl.loaded`, `engine.*` as each node's log names them; `engine.config.*`: vLLM's statement."""
    lines: dict[str, list[str]] = {}
    for node, _, text in store.query(call("manifest_said", life.life_id)).rows:
        lines.setdefault(str(node), []).append(str(text))
    rows: list[Variable] = []
    for node, texts in lines.items():
        said = {name: "; ".join(sorted(values)) for name, values in chosen(texts).items()}
        rows += of_values(life, said, node, None, "measured")
        config = {f"engine.config.{name}": value for name, value in engine_config(texts).items()}
        rows += of_values(life, config, node, None, "reported")
    return rows


def of_memory(store: Store, life: Life) -> list[Variable]:
    """`measured.*` of each rank that told: bytes of weights, KV and graphs, tokens of KV, limits."""
    rows: list[Variable] = []
    for told in store.query(call("startup_memory", life.life_id)).dicts():
        node, rank = str(told.pop("node")), told.pop("rank")
        told.pop("node_rank")
        rows += of_values(life, {f"measured.{name}": value for name, value in told.items()}, node, rank, "measured")
    return rows


def version_of(rows: list[Variable]) -> str | None:
    """The engine's version, by its own answer first."""
    known = {r.name: r.value for r in rows if r.value}
    return next(
        (known[n] for n in ("server.version", "engine.config.version", "server.vllm_version") if n in known), None
    )
