"""Why two sides may not be compared, each in a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from store.analysis.ab.changes import Variables, base_model
from store.analysis.ab.sides import Key, Sample
from store.analysis.statistics import BAR, spread_of

TAINTED = ("tainted", "tokens_differ", "tokens_unknown", "cache_warm", "client_saturated", "isl_reduced")
TOKENS = 0.01  # mean tokens a request may differ by this share


def refusals(a: Sample, b: Sample, keys: Sequence[Key], *, in_blocks: bool) -> list[str]:
    """Reasons from the attempts; empty when the sides may be compared."""
    out: list[str] = []
    if not keys:
        known = [sorted({f"{k[0]} {k[1]}/{k[2]}" for k in s.served}) for s in (a, b)]
        said = [", ".join(names) or "none that ended well" for names in known]
        return [
            f"no case in common: {a.side.label} has {said[0]}; {b.side.label} has {said[1]}. Measure the same cases "
            "with the same client."
        ]
    rows = [[r for k in keys for r in s.served[k]] for s in (a, b)]
    profiled = [any(r["run_kind"] == "profile" or "profiled" in (r["flags"] or []) for r in side) for side in rows]
    if any(profiled):
        which = "both sides are" if all(profiled) else f"{(a if profiled[0] else b).side.label} is"
        out.append(f"{which} profiled: a profile locates time, it is no measurement. Compare plain runs.")
    if len({bool(r["simulated"]) for side in rows for r in side}) > 1:
        out.append("one side is simulated and the other is not")
    flags = {f for side in rows for r in side for f in r["flags"] or []}
    if "gate_override" in flags:
        out.append("the RDMA gate was overridden: which wire was measured is not known. Mend it and measure again.")
    for flag in TAINTED:
        if flag in flags:
            n = sum(flag in (r["flags"] or []) for side in rows for r in side)
            out.append(f"{n} attempts are marked {flag}: their figures do not stand for the case. Measure them again.")
    out += _tokens(a, b, keys)
    if not in_blocks:
        out += [s for sample in (a, b) for s in _unstable(sample, keys)]
    return out


def _tokens(a: Sample, b: Sample, keys: Sequence[Key]) -> Iterable[str]:
    for key in keys:
        for column, word in (("prompt_tokens", "input"), ("answer_tokens", "output")):
            means = [spread_of(r[column] for r in s.served[key]).mean for s in (a, b)]
            if means[0] and means[1] and abs(means[1] / means[0] - 1) > TOKENS:
                yield (
                    f"{key[0]}: counted {word} tokens differ, {means[0]:.1f} against {means[1]:.1f} a request: not the "
                    "same work. Fix the lengths (ignore_eos, seed) and measure again."
                )


def _unstable(sample: Sample, keys: Sequence[Key]) -> Iterable[str]:
    for key in keys:
        metric = "input_tps" if key[2] == 1 else "output_tps"
        cv = spread_of(r[metric] for r in sample.served[key]).cv
        if cv is not None and cv > BAR:
            yield (
                f"{sample.side.label}: the repeats of {key[0]} spread by {cv:.1%}, more than {BAR:.0%}. Find out why "
                "(`show` names what it saw), or measure both sides in blocks with `ab --run`."
            )


def model_refusal(a: Variables, b: Variables, *, checked: bool) -> str | None:
    """Another model is another question; another quantisation of one base is a change whose answers must be checked."""
    first, second = (v.get("deployment.model") or v.get("server.model") or "" for v in (a, b))
    if first == second:
        return None
    if base_model(first) != base_model(second):
        return f"different models, {first} and {second}: their speeds do not answer one question"
    if not checked:
        return (
            f"{first} and {second} are two forms of one model: check first that the answers agree "
            "(`twinrail agree A B`), then compare their speed"
        )
    return None
