"""Why an attempt ended: every reason that holds, in the order of precedence that DESIGN section 3 fixes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runners.spec import Slo

PRECEDENCE = (
    "OOM",
    "ENGINE_CRASH",
    "NODE_LOST",
    "CANCELLED",
    "START_FAILED",
    "GATE_FAILED",
    "CLIENT_ERROR",
    "TTFT_SLO_EXCEEDED",
    "TPOT_SLO_EXCEEDED",
    "SLO_EXCEEDED",
    "TPS_REGRESSION",
    "TPS_SATURATED",
    "MAX_CONCURRENCY_REACHED",
    "OK",
)
WAITING = " [waiting] "  # in a run's detail: what stands behind it holds the run up, and goes when that is over
# After one of these the server is wounded: the next attempt needs another life.
DIRTY = frozenset({"OOM", "ENGINE_CRASH", "NODE_LOST", "START_FAILED", "GATE_FAILED"})


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that went wrong (or did not), with the words that say so."""

    outcome: str
    detail: str = ""


def decide(reasons: Iterable[Reason]) -> tuple[str, str]:
    """Outcome and detail: the first reason by precedence names the outcome, the detail keeps all that hold."""
    ranked = sorted(dict.fromkeys(reasons), key=lambda r: PRECEDENCE.index(r.outcome))  # stable: cause before echo
    if not ranked:
        return "OK", ""
    lead = ranked[0].outcome
    said = [r.detail if r.outcome == lead else f"{r.outcome}: {r.detail}" for r in ranked]
    return lead, "; ".join(s for s in said if s)


_SLO_OUTCOME = {"ttft_ms": "TTFT_SLO_EXCEEDED", "tpot_ms": "TPOT_SLO_EXCEEDED"}


def judge_slo(slo: Slo, window: Mapping[str, Any]) -> list[Reason]:
    """Reasons from the SLO, judged on one window's figures (`ttft_ms: {n, mean, p50, p95, p99}`, `requests: {...}`).

    A figure that is not known breaks nothing: OSL 1 has no TPOT.
    """
    reasons = []
    for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        stats = window.get(metric) or {}
        for stat, limit in getattr(slo, metric).model_dump(exclude_none=True).items():
            value = stats.get(stat)
            if value is not None and value > limit:
                said = f"{metric.removesuffix('_ms').upper()} {stat} {value:.1f} ms > {limit:g} ms"
                reasons.append(Reason(_SLO_OUTCOME.get(metric, "SLO_EXCEEDED"), said))
    return reasons


def success_share(window: Mapping[str, Any]) -> float | None:
    """Share of measured requests that ended well; None when none ended. What the budget cut does not count."""
    counts = window.get("requests") or {}
    total = sum(counts.get(k) or 0 for k in ("ok", "failed", "timed_out"))
    return (counts.get("ok") or 0) / total if total else None
