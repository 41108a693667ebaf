"""What a start will do, in words: the dry run of the plan screen as lines."""

from __future__ import annotations

from typing import Any

from screens.data import Row
from screens.widgets.text import Line, clean, fit, line, num, span_s

MANY = 200  # lines of attempts; a plan with more says how many


def verdict(plan: Row | None, wrong: str | None, refusal: str | None) -> list[Line]:
    """Whether it can be started, and what to know before."""
    lines = []
    if refusal:
        lines.append(line(("✖ not started: ", "bad"), (clean(refusal, 600), "bad")))
    if wrong:
        return [*lines, line(("✖ cannot start: ", "bad"), clean(wrong, 600))]
    if plan is None:
        return [*lines, line(("… working it out", "dim"))]
    bad = sum(p["bad"] for p in plan["problems"])
    if bad:
        lines.append(line(("▲ ", "warn"), (f"{bad} thing{'s'[: bad != 1]} in the way, as far as is known", "warn")))
    else:
        lines.append(line(("● ", "ok"), ("ready: s starts it", "strong")))
    return lines


def problems(plan: Row) -> list[Line]:
    """What is in the way, and what is good to know, as far as the store and the configuration tell."""
    return [
        line(
            ("✖ " if p["bad"] else "· ", "bad" if p["bad"] else "dim"),
            (clean(p["text"], 400), "" if p["bad"] else "dim"),
        )
        for p in plan["problems"]
    ]


def duration(plan: Row) -> list[Line]:
    """How long, from what, and what a server start is of it."""
    known, n = plan["known_attempts"], len(plan["attempts"])
    about = "about" if known == n else "at most" if not known else "up to about"
    why = "by earlier attempts" if known == n else "by budgets" if not known else f"{known} known, budgets for the rest"
    starts = plan["server_starts"]
    each = f"up to {span_s(plan['ready_timeout_s'])}" if plan["start_s"] is None else f"about {span_s(plan['start_s'])}"
    lines = [
        line(
            ("time      ", "dim"),
            (f"{about} {span_s(plan['estimate_s'])}", "strong"),
            f"  {n} attempts ",
            (f"({why})", "dim"),
        ),
        line(
            ("servers   ", "dim"),
            "no start: the one that is up serves, if nothing changed since"
            if not starts
            else f"{starts} start{'s'[: starts != 1]}",
            ("" if not starts else f", {each} each", "dim"),
        ),
    ]
    if (plan["max_repeats"] or 0) > plan["repeats"]:
        lines.append(
            line(
                ("repeats   ", "dim"),
                f"{plan['repeats']}, up to {plan['max_repeats']} of a case that does not agree",
                (f": at most {span_s(plan['longest_s'])} of attempts", "dim"),
            )
        )
    if plan["points"]:
        loads = " ".join(f"{p:g}" for p in plan["points"])
        lines.append(
            line(("climb     ", "dim"), loads, ("  until something stops it; then each answer is refined", "dim"))
        )
    return lines


def preview(plan: Row) -> list[Line]:
    """Attempts in order and the exact commands."""
    cases = {c["case"]: c for c in plan["cases"]}
    lines = [line(("attempts in order", "title"))]
    width = min(max((len(a["case"]) for a in plan["attempts"]), default=0), 48)
    lines += [_attempt(a, cases.get(a["case"]), width) for a in plan["attempts"][:MANY]]
    if len(plan["attempts"]) > MANY:
        lines.append(line((f"      and {len(plan['attempts']) - MANY} more", "dim")))
    return [*lines, line(""), *commands(plan)]


def _attempt(a: Row, case: Row | None, width: int) -> Line:
    spent = f"about {span_s(a['expect_s'])}" if a["expect_s"] is not None else f"at most {span_s(a['budget_s'])}"
    how: list[Any] = [
        (f"{a['ordinal']:>4}  ", "dim"),
        fit(clean(a["case"], 80), width),
        (f"  repeat {a['repeat']}  ", "dim"),
        spent,
    ]
    if case is not None:
        how.append(
            (
                f"  isl {num(case['isl'])} osl {num(case['osl'])}"
                + (f" SLO {clean(case['slo'], 30)}" if case["slo"] else ""),
                "dim",
            )
        )
    if a["starts_server"]:
        how.append(("  starts a server", "accent"))
    return line(*how)


def commands(plan: Row) -> list[Line]:
    """Every command as it would be typed, labelled planned."""
    lines = [line(("commands", "title"), ("   planned, not executed", "warn"))]
    for c in plan["commands"]:
        env = " ".join(f"{k}={v}" for k, v in c["env"].items())
        lines.append(
            line(
                (f"# {clean(c['purpose'], 80)} on {clean(c['node'], 40)}", "accent"),
                (f"   env: {clean(env, 2000)}" if env else "", "dim"),
            )
        )
        lines += [line(clean(part, 4000)) for part in c["text"].split("\n")]
    return lines
