"""What this user may do here (containers, profiling), and who else is here."""

from __future__ import annotations

from collections.abc import Iterable

from runners.gates.preflight.base import Facts, Scope, Verdict, listed, unknown
from runners.gates.preflight.limits import sysctls

BUSY_PCT = 100.0  # a whole core
HOLD_COUNTERS = {"nsys", "ncu", "nv-nsight-cu-cli", "dcgmi"}


def container(scope: Scope) -> Iterable[Verdict]:
    """Whether the node's container engine answers this user."""
    if scope.dep is not None and (scope.dep.launcher != "docker" or not scope.ours):
        return [Verdict("container", "not_applicable", "the deployment uses no containers")]
    facts = scope.facts
    engine = scope.node.container
    if "containers" in facts.blocks:
        version = (facts.blocks.get("engine_version") or [engine])[0]
        return [Verdict("container", "pass", version)]
    why = facts.why("containers")
    status = "fail" if scope.dep is not None and "containers" in facts.missing else "unknown"
    low = why.lower()
    fix = f'install {engine}, or set container = "podman" (or "nerdctl") in [[nodes]]'
    if "permission denied" in low:
        fix = 'set become = "sudo -n" in [[nodes]], or add the user to the docker group'
    elif "cannot connect" in low:
        fix = f"start it: systemctl start {engine}"
    elif "did not answer" in low:
        fix = f"look at its daemon: systemctl status {engine}"
    return [Verdict("container", status, why, fix)]


def profiling(scope: Scope) -> Iterable[Verdict]:
    """Whether GPU counters and CPU samples may be read, and by which tools."""
    facts = scope.facts
    tools = {c[0] for c in facts.table("tool") if c}
    if scope.seen.inside is not None:
        tools |= {f"{c[0]} (in the image)" for c in scope.seen.inside.table("tool") if c and c[0] in ("nsys", "ncu")}
    root = facts.values.get("host.uid") == "0"
    said, fixes = [], []
    params = "\n".join(facts.blocks.get("nvidia_params", []))
    if "RmProfilingAdminOnly: 1" in params and not root:
        said.append("GPU counters are for root only")
        fixes.append('options nvidia NVreg_RestrictProfilingToAdminUsers=0, or become = "sudo -n"')
    elif "RmProfilingAdminOnly" in params:
        said.append("GPU counters may be read")
    paranoid = sysctls(facts).get("kernel.perf_event_paranoid")
    if paranoid is not None:
        said.append(f"perf_event_paranoid {paranoid}")
        if paranoid.lstrip("-").isdigit() and int(paranoid) > 2 and not root:
            fixes.append("sysctl -w kernel.perf_event_paranoid=1 for CPU samples and context switches in nsys")
    found = sorted(t for t in tools if t.split()[0] in ("nsys", "ncu", "dcgmi", "rocprof"))
    said.append(f"tools: {listed(found) or 'no nsys, ncu or dcgmi'}")
    if paranoid is None and not params:
        return [Verdict("profiling", "unknown", "; ".join(said), "cat /proc/sys/kernel/perf_event_paranoid")]
    return [Verdict("profiling", "warn" if fixes else "pass", "; ".join(said), "; ".join(fixes))]


def _processes(facts: Facts) -> list[tuple[int, str, float, str]]:
    """(pid, user, CPU %, command) of `ps`."""
    rows = []
    for line in facts.blocks.get("processes", []):
        words = line.split(None, 4)
        if len(words) == 5 and words[0].isdigit() and words[2].replace(".", "", 1).isdigit():
            rows.append((int(words[0]), words[1], float(words[2]), words[4]))
    return rows


def others(scope: Scope) -> Iterable[Verdict]:
    """Other people's sessions and busy processes: they disturb figures, and may be disturbed."""
    facts = scope.facts
    if "logins" not in facts.blocks and "processes" not in facts.blocks:
        return [unknown("others", facts, "processes", "who; top")]
    me = facts.values.get("host.user", "")
    logins = [line.split() for line in facts.blocks.get("logins", []) if line.split()]
    people = sorted({words[0] for words in logins} - {me})
    rows = _processes(facts)
    leaders = set(scope.living.values())
    busy = [(pid, user, cpu, what) for pid, user, cpu, what in rows if cpu >= BUSY_PCT and pid not in leaders]
    tools = [f"{what} of {user} (pid {pid})" for pid, user, _, what in rows if what.split("/")[-1] in HOLD_COUNTERS]
    said, fixes = [], []
    if people:
        said.append(f"logged in: {listed(people)}")
        fixes.append("tell them, or wait: who -u")
    if busy and not scope.living:
        said.append("busy: " + listed(f"{what} of {user} {cpu:.0f} % (pid {pid})" for pid, user, cpu, what in busy[:4]))
        fixes.append("a busy CPU shows as holes on the GPU: top; ask before ending anything")
    if tools:
        said.append(f"profilers run: {listed(tools)}")
        fixes.append("they hold the GPU's counters: wait for them")
    if said:
        return [Verdict("others", "warn", "; ".join(said), "; ".join(fixes))]
    load = facts.values.get("host.load", "").split(" ")[0]
    mine = f"{len(logins)} sessions of {me}" if logins else "nobody is logged in"
    why = "" if "processes" in facts.blocks else f"; {facts.why('processes')}"
    return [Verdict("others", "pass", f"{mine}, load {load or 'unknown'}{why}")]
