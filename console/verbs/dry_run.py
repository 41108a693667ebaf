"""`run --dry-run`: the exact commands and how long it will take; nothing is contacted and nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.verbs import DONE, out, out_json

if TYPE_CHECKING:
    from console.verbs.run import RunRequest
    from runners.spec import Case, Deployment, Inventory, Node


def show_plan(inventory: Inventory, request: RunRequest, *, as_json: bool) -> int:
    """Print every command that the run would execute, labelled planned. Raises ConfigError for unknown names."""
    document = plan_document(inventory, request)
    if as_json:
        out_json(document)
        return DONE
    out(f"deployment {document['deployment']}: planned, not executed")
    for c in document["commands"]:
        env = " ".join(f"{k}={v}" for k, v in c["env"].items())
        out(f"# {c['purpose']} on {c['node']}" + (f"   env: {env}" if env else ""))
        out(c["text"])
    for a in document["attempts"]:
        out(f"attempt {a['ordinal']}: {a['case']} repeat {a['repeat']}, at most {a['budget_s']:.0f} s")
    out(
        f"duration: at most {document['longest_s'] / 60:.0f} min by the cases' budgets, and a server start of "
        f"up to {document['ready_timeout_s'] / 60:.0f} min"
    )
    return DONE


def plan_document(inventory: Inventory, request: RunRequest) -> dict[str, Any]:
    """The plan as JSON: commands with node, argv text and masked env; attempts in order; time bounds in seconds."""
    from runners.flows.order_of_work import attempts_of, cases_of, max_repeats_of
    from runners.launchers import LAUNCHERS
    from runners.launchers.ranks import rank_commands
    from store.masking import mask_env
    from store.text import shell_line

    cases, dep_name, repeats, how = cases_of(inventory, request.what)
    dep = inventory.deployment(request.deployment or dep_name)
    nodes = inventory.nodes_of(dep)
    repeats = request.repeats or repeats or 1
    most = max_repeats_of(inventory, request.what, repeats)
    attempts = attempts_of("planned", cases, repeats, how)
    commands = [
        {
            "purpose": "server",
            "node": c.node.name,
            "text": shell_line(LAUNCHERS[dep.launcher].planned(dep, c, c.node.root)),
            "env": mask_env(c.env),
        }
        for c in rank_commands(dep, nodes, _planned_path)
    ]
    commands += [_client(case, dep, nodes[0], inventory) for case in cases]
    budgets = {c.label: c.budget for c in cases}
    return {
        "label": "planned",
        "deployment": dep.name,
        "commands": commands,
        "attempts": [
            {"ordinal": a.ordinal, "case": a.case_name, "repeat": a.repeat, "budget_s": budgets[a.case_name]}
            for a in attempts
        ],
        "max_repeats": most,
        "longest_s": sum(budgets[a.case_name] for a in attempts) * (most or repeats) / repeats,
        "ready_timeout_s": dep.ready_timeout,
    }


def _planned_path(node: Node, script: str) -> str:
    from runners.cluster import script_body, script_name

    return f"{node.root}/bin/{script_name(script, script_body(script))}"


def _client(case: Case, dep: Deployment, node: Node, inventory: Inventory) -> dict[str, Any]:
    from runners.clients import client_of
    from runners.clients.base import Ask
    from runners.engines import ENGINES
    from runners.flows.client_tool import with_tool
    from runners.launchers import LAUNCHERS
    from runners.spec import ClientTool
    from store.masking import mask_env
    from store.text import shell_line

    client = client_of(case.client)
    tool = inventory.clients.get(case.client) or ClientTool()
    ask = Ask(
        case=case,
        url=ENGINES[dep.engine].url(dep, [node]),
        model=dep.served_model or dep.model,
        dep=dep,
        seed=0,
        folder=f"{node.root}/jobs/RUN.aN.client",
        tool=tool,
        payloads={script: _planned_path(node, script) for script in client.payloads},
    )
    asked, stdin = client.planned(ask)
    argv = LAUNCHERS[dep.launcher].planned_client(with_tool(dep, tool), node, node.root, asked)
    text = shell_line(argv) + (f" <<'SPEC'\n{stdin}\nSPEC" if stdin else "")
    return {"purpose": f"bench {case.label}", "node": node.name, "text": text, "env": mask_env(tool.env)}
