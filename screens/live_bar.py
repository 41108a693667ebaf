"""The live screen's top bar: the case, how far it is, when it will be done, and the nodes."""

from __future__ import annotations

from collections.abc import Iterable

from screens.data import Row
from screens.live_data import LiveView, S, ended, eta_s, phase_bits, target_requests
from screens.widgets.lamps import lamp, worded
from screens.widgets.text import NONE, Span, clean, num, span_s, stamp


def live_bar(snap: LiveView | None, width: int, held: bool, speed: int, now_ns: int) -> tuple[list[Span], list[Span]]:
    """Left and right end. `held`: a past instant is shown, played at `speed`. `now_ns`: the owner's clock."""
    if snap is None:
        return [("live  ", ""), ("no run yet: 1 goes home, choose a case there, enter starts it", "dim")], []
    a = snap.attempt
    if a["attempt_id"] is None:
        left: list[Span] = [(clean(a["deployment"] or a["kind"], 30), "strong"), ("  ", ""), worded(a["run_state"])]
    else:
        load = f"C {a['concurrency']}" if a["request_rate"] is None else f"rate {a['request_rate']:g}/s"
        ids = [b["attempt_id"] for b in snap.attempts]
        left = [
            (clean(a["case_name"], 30), "strong"),
            ("  ", ""),
            *(_held(snap, speed) if held else _state(snap, now_ns)),
            (f"  attempt {ids.index(a['attempt_id']) + 1}/{len(ids)}", "dim"),
            (f"  {load}", ""),
            (f"  isl {num(a['isl'])} osl {num(a['osl'])}", "dim"),
        ]
    right = node_lamps(snap.nodes, width >= 150)
    if width >= 130:
        right.append((f"run {clean(a['run_id'], 60)} ", "dim"))
    return left, right


def node_lamps(nodes: Iterable[Row], clocks: bool) -> list[Span]:
    """Rows of `live_nodes` as lamps; with `clocks` also how far each clock is from the owner's."""
    spans: list[Span] = []
    for n in nodes:
        sign, role = lamp(n["state"])
        offset = f" {n['offset_ns'] / 1e6:+.1f} ms" if n["offset_ns"] is not None and clocks else ""
        word = "" if n["state"] == "up" else f" {n['state']}"
        spans += [(f"{clean(n['node'], 20)} ", "dim"), (sign + word, role), (offset + "  ", "dim")]
    return spans


def _held(snap: LiveView, speed: int) -> list[Span]:
    how = f" x{speed}" if speed else " held"
    sign = "▶ " if speed else "▌▌ "
    return [(sign, "accent"), (f"at {stamp(snap.now_ns)}{how}", "strong"), ("  e: end", "dim")]


def _state(snap: LiveView, now_ns: int) -> list[Span]:
    if not snap.running:
        why = f" {clean(snap.attempt['detail'], 60)}" if snap.attempt["detail"] else ""
        return [worded(snap.attempt["outcome"] or snap.attempt["state"]), (why, "dim")]
    phase = next((b for b in reversed(phase_bits(snap)) if b.now), None)
    if phase is None:
        began = snap.attempt["started_wall_ns"] or snap.attempt["created_wall_ns"]
        spans: list[Span] = [("STARTING", "accent"), (f" {span_s((now_ns - began) / S)}", "")]
        if snap.stage:
            said = f"{snap.stage['name'].replace('_', ' ')} {snap.stage['detail'] or ''}"
            spans.append((f"  {clean(snap.stage['node'], 20)}: {clean(said, 60)}", "dim"))
        return spans
    spans = [(phase.name.upper(), "accent"), (f" {span_s(phase.took_s)}", "")]
    target = target_requests(snap.attempt)
    if phase.name == "steady" and target:
        spans.append((f"  {ended(snap.counts)}/{target}", "dim"))
    left = eta_s(snap)
    spans.append((f"  eta {span_s(left) if left is not None else NONE}", "dim"))
    return spans
