"""The top of home: what runs or was last, how far the plan is, and the one thing to do next."""

from __future__ import annotations

from screens.data import Row
from screens.home_rows import HomeView, result_cell
from screens.widgets.lamps import worded
from screens.widgets.text import NONE, Line, Span, ago, clean, line

S = 1_000_000_000
NEWCOMER = (
    ("twinrail demo          ", "two simulated nodes, a run to watch, nothing to install"),
    ("twinrail init          ", "a few questions, then your own nodes in twinrail.toml"),
    ("twinrail analyze FILE  ", "where the time goes in a torch or nsys trace, no node needed"),
)


def now_lines(snap: HomeView, configured: bool, owner: bool) -> list[Line]:
    """`owner`: whether it answers; without one everything below is as it was last seen."""
    if not configured and not snap.runs:
        return [line((command, "strong"), (what, "dim")) for command, what in NEWCOMER]
    on = [r for r in snap.runs if r["state"] != "done"]
    lines = [_running(r, snap.now_ns) for r in on[:2]]
    if not on and snap.runs:
        lines.append(_last(snap, snap.runs[0]))
    lines.append(line(("next: ", "dim"), *next_step(snap, owner)))
    return lines + ([_plan(snap)] if snap.plans else [])


def _running(r: Row, now_ns: int) -> Line:
    by = r["paused_by"]
    return line(
        ("▌▌", "warn") if by else ("● ", "accent"),
        (" " if by else "", ""),
        (clean(r["run_id"], 60), "strong"),
        (f"  paused by {clean(by, 40)}" if by else "  waits for its turn" if r["state"] == "planned" else "", "warn"),
        f"  {clean(r['plan'] or r['kind'], 30)} on {clean(r['deployment'] or NONE, 40)}  ",
        (f"{r['attempts_done']} of {r['attempts']} attempts, {ago((now_ns - r['created_wall_ns']) / S)}", "dim"),
    )


def _last(snap: HomeView, r: Row) -> Line:
    """The last run with the figures of its last attempt, where the deployment had none since."""
    result = next((d for d in snap.deployments if d["run_id"] == r["run_id"] and d["outcome"] is not None), None)
    figures = f"  {result_cell(result)[0]}" if result is not None and result.get("result") else ""
    return line(
        ("nothing runs. last: ", "dim"),
        clean(r["run_id"], 60),
        " ",
        worded(r["outcome"] or r["state"]),
        (f"  {ago((snap.now_ns - r['created_wall_ns']) / S)} ago", "dim"),
        (figures, "dim"),
    )


def _plan(snap: HomeView) -> Line:
    p = snap.plans[0]
    then = f"next {clean(p.next_case, 40)}" if p.next_case else "all measured"
    return line(
        (f"plan {clean(p.plan, 40)}: ", "dim"),
        f"{p.measured} of {p.cases} cases measured on {clean(p.deployment, 40)}, {then}",
    )


def next_step(snap: HomeView, owner: bool) -> list[Span]:
    """The one thing to do now."""
    if not owner:
        return [
            ("press O: ", "strong"),
            ("a new owner. The last one ended (by itself, when nothing runs and nobody watches) or died", "warn"),
        ]
    for n in snap.nodes:
        name = clean(n["node"], 40)
        if n["state"] == "hostkey":
            return [(f"{name}: its host key is not known or has changed; `twinrail trust {name}` shows it", "warn")]
        if n["state"] == "auth_needed":
            said = "refuses the login: load the key into the agent or set key = in [[nodes]], then check"
            return [(f"{name} {said}", "warn")]
        if n["state"] in ("lost", "gone"):
            said = "its jobs go on and are caught up when it is back. check says more"
            return [(f"{name} is {n['state']}; {said}", "warn")]
    on = [r for r in snap.runs if r["state"] != "done"]
    if any(r["paused_by"] for r in on):
        return [("a run is paused: C, then p lets it go on", "")]
    if on:
        return [("2 shows it live; C pauses, skips, retries or aborts", "")]
    if not snap.runs:
        return [("`twinrail check`, then choose a plan or a case here and press enter", "")]
    last = snap.runs[0]
    if last["outcome"] not in (None, "OK"):
        return [(f"look at {clean(last['run_id'], 60)}: g r shows its attempts and commands", "")]
    if snap.plans and snap.plans[0].next_case:
        return [(f"enter on plan {clean(snap.plans[0].plan, 40)}, or 4: what a start will do, then s", "")]
    return [("choose a plan or a case and press enter, or 4 to vary one", "")]
