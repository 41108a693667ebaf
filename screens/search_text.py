"""What a search says in words: what is measured now, what the last point showed, the answers, time and cost.

Reasons are those that the flow wrote down with its points and its verdict; nothing is concluded here.
"""

from __future__ import annotations

from screens.data import Row
from screens.search_data import ANSWERS, S, SearchView, load_of, load_word
from screens.search_rows import load_cell, outcome_cell, percent, share_cell, spread_cell
from screens.widgets.lamps import worded
from screens.widgets.text import NONE, Line, Span, clean, fit, line, milli, num, span_s

WHY = {
    "climb": "the next rung of the climb",
    "success": "halves the gap above the most load that succeeds",
    "preemption": "halves the gap below the first pre-emption",
    "slo": "halves the gap above the most load within the SLO",
    "tps": "halves a gap beside the most tokens a second",
}


def label(text: str) -> Span:
    return f"{text:9}", "dim"


def tps_word(snap: SearchView) -> str:
    return "input tok/s" if snap.tps == "input_tps" else "output tok/s"


def words(snap: SearchView) -> tuple[Line, ...]:
    """The lines of the lower panel, the most wanted first."""
    return (*_now(snap), *_last(snap), *_climb(snap), *_answers(snap), _cost(snap), *_spread(snap))


def _now(snap: SearchView) -> list[Line]:
    if snap.step is not None:
        said = f"as it was after point {snap.step} of {snap.settled}"
        return [line(label("shown"), (said, "accent"), ("   the answers were written down at the end:  e: end", "dim"))]
    if not snap.running:
        return []
    live = snap.live
    if live is None:
        state = snap.run["run_state"]
        doing = {"collecting": "collecting what it leaves behind"}.get(
            state, "between two attempts, or the server starts"
        )
        return [line(label("now"), (doing, "accent"))]
    spans: list[Span] = [
        label("now"),
        (load_word(live), "strong"),
        (f"  repeat {live['repeat']} of {num(snap.rules.get('repeats'))}", ""),
    ]
    spans.append(
        (f"  {clean(live['phase'] or 'starting', 20)}  {live['ended']}/{num(live['target'])} requests", "accent")
    )
    why = WHY.get(snap.why or "", "")
    spans.append((f"   {why}" if why else "", "dim"))
    return [line(*spans)]


def _last(snap: SearchView) -> list[Line]:
    if not snap.points:
        return []
    p = snap.points[-1]
    said = clean(p["detail"] or "", 400) or ("meets the SLO" if p["within_slo"] else "no fault in it")
    return [line(label("last"), (load_word(p), "strong"), "  ", worded(p["outcome"]), f"  {said}")]


def _climb(snap: SearchView) -> list[Line]:
    verdict = snap.verdict
    if snap.step is not None:
        return []
    if verdict.get("stopped"):
        said = clean(verdict.get("detail") or "", 400)
        return [line(label("climb"), "stopped by ", worded(str(verdict["stopped"])), f"  {said}")]
    if not snap.running:
        said = clean(snap.run["run_detail"] or "", 300)
        return [line(label("climb"), "cut by ", worded(snap.run["run_outcome"]), f"  {said}")]
    step, top, refine, unit = (snap.rules.get(k) for k in ("step", "maximum", "refine", "unit"))
    if not isinstance(step, int) or not isinstance(top, int) or not isinstance(refine, int):
        return []
    if isinstance(unit, float):
        rungs = (
            f"{step * unit:g}, {2 * step * unit:g} ... up to {top * unit:g} requests/s, refined to {refine * unit:g}"
        )
    else:
        rungs = f"1, {step}, {2 * step} ... up to {top}, then refined to {refine}"
    return [line(label("climb"), f"{rungs}; nothing stopped it yet")]


def _answers(snap: SearchView) -> list[Line]:
    if snap.step is not None:
        return []
    lines = []
    by_load = {p["load"]: p for p in snap.points}
    kind = "concurrency" if snap.rules.get("unit") is None else "request_rate"
    for name, (letter, word, _) in ANSWERS.items():
        said, head = snap.verdict.get(name), label(f"({letter})")
        if not isinstance(said, dict):
            if name != "max_unpreempted":
                lines.append(line(head, f"{word:11}", (_no_answer(snap, name), "dim")))
            continue
        p = by_load.get(load_of(said))
        tps = num(p["tps"], 1) if p else NONE
        above = f" at {load_word({kind: said['above']})}" if said.get("above") is not None else ""
        bound = f"bounded by {clean(said.get('bounded_by') or NONE, 60).replace('_', ' ')}{above}"
        load = load_word(said)
        lines.append(line(head, f"{word:11}", (f"{load:7}", "strong"), f" {tps:>8} {tps_word(snap)}  ", (bound, "dim")))
    return lines


def _no_answer(snap: SearchView, name: str) -> str:
    if name == "max_within_slo" and not snap.rules.get("has_slo"):
        return "no SLO was asked for"
    return "no point yet" if snap.running else "none"


def _cost(snap: SearchView) -> Line:
    """How long it took, what is left of this point, what each further point and a restart cost."""
    pace = snap.pace
    spans: list[Span] = [label("time"), (f"{span_s(pace.get('took_s') or 0.0)} so far", "")]
    left = point_left_s(snap)
    if left is not None:
        spans.append((f", this point about {span_s(left)} more", ""))
    if snap.running and pace.get("point_s") is not None:
        spans.append((f", each further point about {span_s(pace['point_s'])}", ""))
    start = (
        f"a restart costs about {span_s(pace['start_s'])} (median of {pace['starts']})"
        if pace.get("start_s")
        else "cost of a restart not known"
    )
    spans.append((f"; {start}", "dim"))
    return line(*spans)


def point_left_s(snap: SearchView) -> float | None:
    """Seconds that the point at work still needs: what is left of this attempt and a median one for each repeat."""
    live, each = snap.live, snap.pace.get("attempt_s")
    if live is None or each is None or live["started_wall_ns"] is None:
        return None
    repeats = snap.rules.get("repeats")
    after = max((repeats if isinstance(repeats, int) else 1) - live["repeat"], 0)
    gone = (snap.now_ns - live["started_wall_ns"]) / S
    return float(max(each - gone, 0.0) + after * each)


def _spread(snap: SearchView) -> list[Line]:
    spread, tolerance = snap.verdict.get("spread"), snap.verdict.get("tolerance")
    if snap.step is not None or not isinstance(spread, float):
        return []
    near = (
        f", so (T) may lie up to {100 * tolerance:.1f} % below the peak"
        if isinstance(tolerance, float) and tolerance
        else ""
    )
    return [line(label("spread"), f"repeats of a point differ by {100 * spread:.1f} %{near}")]


def legend(snap: SearchView) -> Line:
    """The rings in words."""
    spans: list[Span] = []
    for name, (letter, _, word) in ANSWERS.items():
        said = snap.verdict.get(name)
        if isinstance(said, dict) and snap.step is None:
            spans += [(f"({letter}) ", "strong"), (f"{word} {load_cell(said)[0]}  ", "dim")]
    if snap.knee is not None:
        spans.append((f"knee {load_cell(snap.knee)[0]}", "dim"))
    return Line(tuple(spans))


def point_lines(row: Row, snap: SearchView) -> list[Line]:
    """One point to read: every figure, and what was written down about it."""
    lines = [
        line(
            (load_word(row), "strong"),
            "  ",
            outcome_cell(row),
            f"  {tps_word(snap)} {num(row['tps'], 1)} {spread_cell(row)[0]}",
        )
    ]
    if row.get("detail"):
        lines.append(line(clean(row["detail"], 4000)))
    head = f"{'':8}{'n':>7}{'p50':>10}{'p95':>10}{'p99':>10}{'mean':>10}"
    lines += [line(""), line((head, "dim"))]
    for m in ("ttft_ms", "tpot_ms", "e2e_ms"):
        cells = "".join(f"{milli(row.get(f'{m}_{s}')):>10}" for s in ("p50", "p95", "p99", "mean"))
        bounds = "  ".join(f"SLO {s} {v:g}" for s, v in snap.slo.get(m, {}).items())
        lines.append(
            line(
                (fit(f"{m.removesuffix('_ms').upper()} ms", 8), "dim"),
                f"{num(row.get(f'{m}_n')):>7}{cells}",
                (f"  {bounds}", "warn"),
            )
        )
    lines.append(line(""))
    lines.append(
        line(
            ("in SLO   ", "dim"),
            f"{share_cell(row)[0]} % of the measured requests",
            ("   goodput ", "dim"),
            f"{num(row['goodput_rps'], 2)} requests/s",
            ("   prefix hits ", "dim"),
            f"{percent(row.get('prefix_hit_share'))} %",
        )
    )
    lines.append(
        line(
            ("attempts ", "dim"), " ".join(clean(a, 80) for a in row.get("attempts") or [row.get("attempt_id") or NONE])
        )
    )
    return lines
