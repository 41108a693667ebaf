"""The comparison document: verdict first, then why, what changed, and every metric with its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from store.analysis.ab.changes import changes_of, variables_of
from store.analysis.ab.refusals import model_refusal, refusals
from store.analysis.ab.sides import OURS, Key, Sample, Side, paired, pairs_of, replicates_of, sample_of
from store.analysis.effect import LEVEL, MARGIN, Effect, judged, paired_effect, separate_effect
from store.analysis.statistics import spread_of
from store.export.reader import Reader
from store.queries import call

HIGHER = ("output_tps", "input_tps", "request_rate")
LOWER = tuple(f"{m}_ms_{s}" for m in ("ttft", "tpot", "itl", "e2e") for s in ("mean", "p50", "p95", "p99"))
METRICS = (*HIGHER, *LOWER)
SENTENCES = {
    "improve": "B is better",
    "regress": "B is worse",
    "no_change": "no change",
    "not_enough_data": "not enough data to tell",
    "confounded": "confounded: something else changed too",
    "refused": "not to be compared",
}


def compare(
    reader: Reader,
    a: Side,
    b: Side,
    *,
    primary: str | None = None,
    declared: Sequence[str] = (),
    margin: float = MARGIN,
    noise: float | None = None,
    agreement: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Document of `ab`. `declared`: what was meant to differ; `noise`: a declared CV; `agreement`: a correctness check.

    Raises:
        ValueError: a primary metric that there is not.
    """
    if primary is not None and primary not in METRICS:
        raise ValueError(f"no metric is called {primary!r}. Known: {', '.join(METRICS)}.")
    rows = reader.query(call("ab_attempts", sorted({*a.runs, *b.runs}))).dicts()
    first, second = sample_of(a, rows), sample_of(b, rows)
    keys = [k for k in first.served if k in second.served]
    primary = primary or ("input_tps" if keys and all(k[2] == 1 for k in keys) else "output_tps")
    variables = [
        variables_of(reader.query(call("ab_variables", list(s.side.runs), s.lives)).dicts()) for s in (first, second)
    ]
    changes = changes_of(variables[0], variables[1], declared)
    in_blocks = paired(first, second, keys) if keys else False
    by_life = any(c.kind in ("intended", "undeclared") for c in changes)
    metrics = _metrics(first, second, keys, primary, margin, noise, in_blocks=in_blocks, by_life=by_life)
    refused = refusals(first, second, keys, in_blocks=in_blocks) if keys or not _collapsed(first, second) else []
    if other := model_refusal(variables[0], variables[1], checked=agreement is not None):
        refused.append(other)
    verdict, reasons = _verdict(first, second, metrics, refused, [c.name for c in changes if c.kind == "undeclared"])
    if agreement is not None and verdict in ("improve", "no_change") and not agreement["agrees"]:
        verdict, reasons = "regress", [f"the answers got worse: {agreement['why']}", *reasons]
    return {
        "verdict": verdict,
        "sentence": f"{SENTENCES[verdict]}: {reasons[0]}" if reasons else SENTENCES[verdict],
        "primary": primary,
        "reasons": reasons,
        "changed": [{"name": c.name, "a": c.a, "b": c.b, "kind": c.kind} for c in changes],
        "metrics": metrics,
        "replicate": "block" if in_blocks else "server life" if by_life else "attempt",
        "margin_pct": 100 * margin,
        "sides": {"a": _side(first), "b": _side(second)},
        "agreement": dict(agreement) if agreement is not None else None,
    }


def _side(sample: Sample) -> dict[str, Any]:
    failures = [{k: r[k] for k in ("attempt_id", "case_name", "outcome", "detail")} for r in sample.failed]
    return {
        "label": sample.side.label,
        "runs": list(sample.side.runs),
        "lives": len(sample.lives),
        "attempts": sum(map(len, sample.served.values())) + len(failures),
        "failures": failures,
    }


def _collapsed(a: Sample, b: Sample) -> bool:
    """Whether one side served and the other never did, by its own fault."""
    fault = [f for f in b.failed if f["outcome"] not in OURS]
    return bool(a.served) and not b.served and bool(fault)


def _verdict(
    a: Sample, b: Sample, metrics: Sequence[Mapping[str, Any]], refused: list[str], undeclared: list[str]
) -> tuple[str, list[str]]:
    if refused:
        return "refused", refused
    if undeclared:
        names = ", ".join(undeclared[:8]) + (f" and {len(undeclared) - 8} more" if len(undeclared) > 8 else "")
        said = f"undeclared differences: {names}. Take them back, or declare what was meant with --change NAME."
        return "confounded", [said]
    ends = [_failures(s) for s in (a, b)]
    if _collapsed(a, b):
        return "regress", [f"{b.side.label} never served: {ends[1]}"]
    if _collapsed(b, a):
        return "improve", [f"{a.side.label} never served: {ends[0]}; {b.side.label} did"]
    lead = next((m for m in metrics if m["primary"]), None)
    verdict, why = (
        (lead["verdict"], lead["why"]) if lead else ("not_enough_data", "no attempt of both sides ended well")
    )
    reasons = [f"{lead['name']} {why}" if lead else why]
    faults = [sum(f["outcome"] not in OURS for f in s.failed) for s in (a, b)]
    total = sum(map(len, b.served.values())) + len(b.failed)
    if faults[1] > faults[0] and 2 * faults[1] >= total:
        return "regress", [f"{b.side.label} failed more often than it served: {ends[1]}", *reasons]
    reasons += [f"{s.side.label}: {end}" for s, end in zip((a, b), ends, strict=True) if end]
    if faults[1] > faults[0] and verdict in ("improve", "no_change"):
        verdict, reasons = "not_enough_data", [f"{b.side.label} is not as steady as {a.side.label}", *reasons]
    return verdict, reasons


def _failures(sample: Sample) -> str:
    counts = Counter(str(f["outcome"]) for f in sample.failed)
    first = next((f"{f['detail']}" for f in sample.failed if f["detail"]), "")
    return ", ".join(f"{n} x {outcome}" for outcome, n in counts.most_common()) + (f" ({first[:200]})" if first else "")


def _metrics(
    a: Sample,
    b: Sample,
    keys: Sequence[Key],
    primary: str,
    margin: float,
    noise: float | None,
    *,
    in_blocks: bool,
    by_life: bool,
) -> list[dict[str, Any]]:
    """The primary metric first, at 95 %; all others share one 5 % among them (Bonferroni)."""
    if not keys:
        return []
    rest = [m for m in METRICS if m != primary]
    groups: list[tuple[str | None, Sequence[Key]]] = [(None, keys)]
    groups += [(str(k[0]), [k]) for k in keys] if len(keys) > 1 else []
    many = len(rest) * len(groups) + len(groups) - 1
    level = 1 - (1 - LEVEL) / many
    out = []
    for case, some in groups:
        for name in (primary, *rest):
            lead = case is None and name == primary
            values = [replicates_of(s, some, name, by_life=by_life) for s in (a, b)]
            if not values[0] or not values[1]:
                continue
            at = LEVEL if lead else level
            effect = (
                paired_effect(pairs_of(a, b, some, name), level=at, noise=noise, target=margin)
                if in_blocks
                else separate_effect(*values, level=at, noise=noise, target=margin)
            )
            out.append(_metric(name, case, values, effect, margin, at, lead=lead))
    return out


def _metric(
    name: str, case: str | None, values: list[list[float]], effect: Effect, margin: float, level: float, *, lead: bool
) -> dict[str, Any]:
    verdict, why = judged(effect, higher_is_better=name in HIGHER, margin=margin, level=level)
    return {
        "name": name,
        "case": case,
        "primary": lead,
        "a": spread_of(values[0]).mean,
        "b": spread_of(values[1]).mean,
        "effect_pct": _percent(effect.change),
        "low_pct": _percent(effect.low),
        "high_pct": _percent(effect.high),
        "verdict": verdict,
        "why": why,
        "n": effect.n,
        "level": level,
        "detectable_pct": _percent(effect.detectable),
        "needed": effect.needed,
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
