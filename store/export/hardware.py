"""What each attempt used of GPUs, PCIe and rails, and what the engine's counters gained: for documents and `show`."""

from __future__ import annotations

from typing import Any

from store.export.reader import Reader
from store.queries import call


def hardware_part(reader: Reader, run_id: str) -> dict[str, dict[str, Any]]:
    """attempt_id -> {gpus: {...} or null, rails: [...], engine: {...} or null}; units are in the names."""
    found: dict[str, dict[str, Any]] = {}

    def of(attempt_id: str) -> dict[str, Any]:
        return found.setdefault(attempt_id, {"gpus": None, "rails": [], "engine": None})

    for row in reader.query(call("gpu_shares", run_id)).dicts():
        of(row.pop("attempt_id"))["gpus"] = row
    for row in reader.query(call("rail_shares", run_id)).dicts():
        of(row.pop("attempt_id"))["rails"].append(row)
    for row in reader.query(call("engine_shares", run_id)).dicts():
        of(row.pop("attempt_id"))["engine"] = row
    return found


def hardware_lines(part: dict[str, Any]) -> list[str]:
    """The same in words, a line each for GPUs, rails and the engine; nothing where there are no figures."""
    lines = []
    if gpus := part["gpus"]:
        pcie = f", PCIe {_n(gpus['pcie_pct'], 1)} % of line" if gpus["pcie_pct"] is not None else ""
        tensor = f", tensor {_n(gpus['tensor_pct'], 1)} %" if gpus["tensor_pct"] is not None else ""
        held = f", held back {_n(gpus['throttled_pct'], 1)} % (worst GPU)" if gpus["throttled_pct"] else ""
        low = f"{_n(gpus['least_pct'])} % ({gpus['least_gpu']})"
        lines.append(
            f"{gpus['gpus']} GPUs {_n(gpus['util_pct'], 1)} % busy, least {low}{tensor}{pcie}{held}; "
            f"{_n(gpus['covered_pct'])} % of the {gpus['span']} time sampled"
        )
    for r in part["rails"]:
        trouble = [f"{r[k]} {k}" for k in ("retransmits", "timeouts", "drops", "errors", "resets") if r[k]]
        if r["rx_pauses"] or r["tx_pauses"]:
            trouble.append(f"pauses rx {r['rx_pauses']} tx {r['tx_pauses']}")
        said = f"; {', '.join(trouble)}" if trouble else ""
        lines.append(
            f"{r['node']} {r['device']} tx {_n(r['tx_gbs'], 2)} rx {_n(r['rx_gbs'], 2)} GB/s, "
            f"{_n(r['line_pct'], 1)} % of line, {_n(r['node_pct'])} % of the node{said}"
        )
    if engine := part["engine"]:
        bracket = "" if engine["bracketed"] else "; not bracketed by scrapes"
        reset = "; its counters began anew within" if engine["reset"] else ""
        parts = [
            f"{name} {_n(engine[key], digits)}{unit}"
            for name, key, digits, unit in (
                ("queue", "queue_ms", 1, " ms"),
                ("service", "service_ms", 1, " ms"),
                ("KV up to", "kv_max_pct", 1, " %"),
                ("prefix hits", "prefix_hit_pct", 1, " %"),
                ("pre-empted", "preemptions", 0, ""),
                ("accepted", "accept_pct", 1, " %"),
                ("accept length", "accept_length", 2, ""),
                ("tokens a step", "tokens_per_step", 1, ""),
            )
            if engine[key] is not None
        ]
        if parts:
            lines.append(f"engine {', '.join(parts)}{bracket}{reset}")
    return lines


def _n(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
