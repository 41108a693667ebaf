"""What a start would do: its attempts in order, how long, every command. Nothing is contacted and nothing is changed.

The CLI's `run --dry-run` and the plan screen show this one document; the owner makes the same attempts (asked.py) and
the same commands (launchers, clients) when it carries the order out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runners import orders
from runners.clients import client_of
from runners.clients.base import Ask, AskError
from runners.cluster import script_body, script_name
from runners.engines import ENGINES
from runners.flows import ladder
from runners.flows.asked import search_asked, work_asked
from runners.flows.client_tool import with_tool
from runners.flows.order_of_work import attempt_of
from runners.flows.search import case_at, options_of
from runners.flows.variants import deployment_of
from runners.launchers import LAUNCHERS
from runners.launchers.ranks import rank_commands
from runners.spec import Case, ClientTool, ConfigError, Deployment, Inventory, Node
from store.masking import mask_env, mask_text
from store.records import Attempt
from store.text import shell_line

Row = Mapping[str, Any]
MAX_NOTE = 100  # characters of what is good to know; `check` has the whole
TROUBLE = {
    "lost": "does not answer: see home (1), and `twinrail check`",
    "gone": "is gone: see home (1), and `twinrail check`",
    "hostkey": "has a host key that is not known or has changed: `twinrail trust NODE`",
    "auth_needed": "refuses the login: load the key into the agent or set key = in [[nodes]]",
}


@dataclass(frozen=True, slots=True)
class Known:
    """What the store knows that tells what a start will meet. Rows of screen_history, plan_lives, live_nodes,
    plan_gates and runs_list."""

    history: Sequence[Row] = ()
    lives: Sequence[Row] = ()
    nodes: Sequence[Row] = ()
    gates: Sequence[Row] = ()
    runs: Sequence[Row] = ()


def planned(
    inventory: Inventory, order: orders.StartRun | orders.StartSearch, known: Known | None = None
) -> dict[str, Any]:
    """The plan as JSON. Times in seconds; `expect_s`: median of earlier attempts alike; null: none yet.

    {label, kind: run | search, deployment, commands: [{purpose, node, text, env}],
    cases: [{case, isl, osl, concurrency, request_rate, requests, slo, client, budget_s}],
    attempts: [{ordinal, case, repeat, budget_s, expect_s, starts_server}],
    points: loads of a search's climb (its refinement is not foreseen), repeats, max_repeats, longest_s, estimate_s,
    known_attempts, server_starts, start_s, ready_timeout_s, problems: [{bad, text}]}

    Raises:
        ConfigError: the order names what is not there, or what cannot be.
    """
    known = known or Known()
    work = _run_work(inventory, order) if isinstance(order, orders.StartRun) else _search_work(inventory, order)
    dep = inventory.deployment(work.deployment)
    nodes = inventory.nodes_of(dep)
    served = {a.variant: deployment_of(inventory, a, dep) for a in work.attempts}
    rows = _attempt_rows(work.attempts, dep, known, served)
    starts = sum(r["starts_server"] for r in rows)
    start_s = next((r["start_s"] for r in known.lives if r["deployment"] == dep.name), None)
    rests = work.cool_down * (len(rows) - 1)
    longest = sum(r["budget_s"] for r in rows) * (work.most or work.repeats) / work.repeats + rests
    estimate = sum(r["budget_s"] if r["expect_s"] is None else r["expect_s"] for r in rows) + rests
    estimate += starts * (dep.ready_timeout if start_s is None else start_s)
    return {
        "label": "planned",
        "kind": "run" if isinstance(order, orders.StartRun) else "search",
        "deployment": dep.name,
        "commands": _commands(inventory, served, work.legs) if nodes else [],
        "cases": [_case_row(name, case) for name, case in work.legs],
        "attempts": rows,
        "points": work.points,
        "repeats": work.repeats,
        "max_repeats": work.most,
        "longest_s": min(longest, work.limit),
        "estimate_s": min(estimate, work.limit),
        "known_attempts": sum(r["expect_s"] is not None for r in rows),
        "server_starts": starts,
        "start_s": start_s,
        "ready_timeout_s": dep.ready_timeout,
        "problems": problems_of(inventory, dep, work.legs, known),
    }


def _case_row(name: str, case: Case) -> dict[str, Any]:
    row = case.model_dump(include={"isl", "osl", "concurrency", "request_rate", "requests", "slo", "client"})
    return {"case": name, **row, "budget_s": case.budget}


@dataclass(frozen=True, slots=True)
class _Planned:
    """A run or a search in the same words. `points`: loads of a search's climb; its refinement is not foreseen."""

    deployment: str | None
    attempts: list[Attempt]
    legs: list[tuple[str, Case]]
    repeats: int
    most: int | None = None
    cool_down: float = 0.0
    limit: float = math.inf
    points: list[float] = field(default_factory=list)


def _run_work(inventory: Inventory, order: orders.StartRun) -> _Planned:
    work = work_asked(inventory, order)
    return _Planned(
        work.deployment,
        work.attempts("planned"),
        [(leg.name, leg.case) for leg in work.legs],
        work.repeats,
        work.most,
        work.cool_down or 0.0,
        work.budget or math.inf,
    )


def _search_work(inventory: Inventory, order: orders.StartSearch) -> _Planned:
    case, search = search_asked(inventory, order)
    rules = ladder.Rules(**options_of(case, search)["rules"])
    loads = ladder.rungs(rules)
    cases = [case_at(case, n, rules) for n in loads]
    pairs = [(c, r) for c in cases for r in range(1, search.repeats + 1)]
    return _Planned(
        order.deployment,
        [attempt_of("planned", n, c, r, "planned") for n, (c, r) in enumerate(pairs, 1)],
        [(cases[0].label, cases[0])],
        search.repeats,
        points=[n * rules.unit if rules.unit else n for n in loads],
    )


def _attempt_rows(
    attempts: Sequence[Attempt], dep: Deployment, known: Known, served: Mapping[str | None, Deployment]
) -> list[dict[str, Any]]:
    """The attempts, each with the time that it may take and whether a server is started for it."""
    medians = {
        (h["case_name"], h["concurrency"], h["request_rate"]): h["median_s"]
        for h in known.history
        if h["deployment"] == dep.name
    }
    up = any(r["deployment"] == dep.name and r["state"] == "ready" for r in known.lives)
    before: Deployment | None = dep if up else None
    rows = []
    for a in attempts:
        case = Case.model_validate_json(a.case_spec or "{}")
        server = served[a.variant]
        rows.append(
            {
                "ordinal": a.ordinal,
                "case": a.case_name,
                "repeat": a.repeat,
                "budget_s": case.budget,
                "expect_s": medians.get((a.case_name, a.concurrency, a.request_rate)),
                "starts_server": server != before and server.engine != "external",
            }
        )
        before = None if case.lives == "per_repeat" else server
    return rows


def problems_of(
    inventory: Inventory, dep: Deployment, legs: Iterable[tuple[str, Case]], known: Known
) -> list[dict[str, Any]]:
    """What would stand in the way, as far as it is known without asking anybody; the worst first."""
    nodes = inventory.nodes_of(dep)
    names = {n.name for n in nodes}
    found: list[tuple[bool, str]] = []
    seen = {r["node"]: r for r in known.nodes}
    if not nodes:
        found.append((True, "no node: an external server needs a [[nodes]] entry for the load client to run on"))
    states = {name: (seen.get(name) or {}).get("state", "") for name in sorted(names)}
    found += [(True, f"{n} {TROUBLE[state].replace('NODE', n)}") for n, state in states.items() if state in TROUBLE]
    for g in known.gates:
        if g["node"] in names or g["node"] is None:
            bad = g["status"] == "fail"
            where = f"{g['node']} " if g["node"] else ""
            fix = f". Next: {g['fix']}" if g["fix"] and bad else ""
            detail = (g["detail"] or "").rstrip(".")
            found.append((bad, f"last check: {where}{g['name']}: {detail if bad else detail[:MAX_NOTE]}{fix}"))
    if nodes and not any(name in seen for name in names):
        found.append(
            (False, f"{', '.join(sorted(names))} not asked yet: `twinrail check` looks before anything starts")
        )
    on = [r for r in known.runs if r["state"] not in ("done",) and r["kind"] != "watch"]
    if on:
        found.append((False, f"run {on[0]['run_id']} is on: this one waits for its turn"))
    found += [
        (False, f"{name}: {case.fallback_isl} tokens where the server's context is shorter than {case.isl}")
        for name, case in legs
        if case.fallback_isl is not None
    ]
    return [{"bad": bad, "text": mask_text(text)} for bad, text in sorted(found, key=lambda f: not f[0])]


# -- commands


def _commands(
    inventory: Inventory, served: Mapping[str | None, Deployment], legs: Iterable[tuple[str, Case]]
) -> list[dict[str, Any]]:
    """Every command, once: servers rank by rank for each variant, then the load client for each case."""
    servers: list[Deployment] = []
    servers += [dep for dep in served.values() if dep not in servers]
    found = [
        {
            "purpose": "server",
            "node": c.node.name,
            "text": shell_line(LAUNCHERS[dep.launcher].planned(dep, c, c.node.root)),
            "env": mask_env(c.env),
        }
        for dep in servers
        for c in rank_commands(dep, inventory.nodes_of(dep), _path)
    ]
    return found + [_client(inventory, name, case, servers[0]) for name, case in legs]


def _client(inventory: Inventory, name: str, case: Case, dep: Deployment) -> dict[str, Any]:
    client = client_of(case.client)
    tool = inventory.clients.get(case.client) or ClientTool()
    node = inventory.nodes_of(dep)[0]
    ask = Ask(
        case=case,
        url=ENGINES[dep.engine].url(dep, [node]),
        model=dep.served_model or dep.model,
        dep=dep,
        seed=0,
        folder=f"{node.root}/jobs/RUN.aN.client",
        tool=tool,
        payloads={script: _path(node, script) for script in client.payloads},
    )
    try:
        asked, stdin = client.planned(ask)
    except AskError as e:
        raise ConfigError(f"case {name}: {e}") from e
    argv = LAUNCHERS[dep.launcher].planned_client(with_tool(dep, tool), node, node.root, asked)
    text = shell_line(argv) + (f" <<'SPEC'\n{stdin}\nSPEC" if stdin else "")
    return {"purpose": f"bench {name}", "node": node.name, "text": text, "env": mask_env(tool.env)}


def _path(node: Node, script: str) -> str:
    return f"{node.root}/bin/{script_name(script, script_body(script))}"
