"""What has to be the same on all nodes: image, model files, versions, settings of the rails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from runners.gates.preflight.base import Facts, Scope, Seen, Verdict, differing, listed
from runners.gates.preflight.gpus import gpu_rows


def _values(scope: Scope, of: Callable[[Seen], str]) -> dict[str, str]:
    return {name: of(seen) for name, seen in scope.others.items()}


def _alone(name: str, scope: Scope) -> Verdict | None:
    return Verdict(name, "not_applicable", "one node") if len(scope.others) < 2 else None


def image_id(seen: Seen) -> str:
    """Id of the deployment's image on a node; empty when it is not there or was not told."""
    lines = seen.facts.blocks.get("image") or [""]
    words = lines[0].split()
    return words[0] if words else ""


def image(scope: Scope) -> Iterable[Verdict]:
    """One image id everywhere: a tag may be another image on each node."""
    if scope.dep is None or scope.dep.launcher != "docker" or not scope.ours:
        return [Verdict("image_same", "not_applicable", "no image asked for")]
    ids = _values(scope, image_id)
    short = {node: i.removeprefix("sha256:")[:12] for node, i in ids.items()}
    if any(not i for i in ids.values()):
        missing = listed(node for node, i in ids.items() if not i)
        return [Verdict("image_same", "unknown", f"no id from {missing}", "see `image` of that node")]
    if len(set(ids.values())) > 1:
        name = scope.dep.image
        fix = f"put one image everywhere: docker save {name} | ssh NODE docker load, or pull it by its digest"
        return [Verdict("image_same", "fail", f"{name} differs: {differing(short)}", fix)]
    return [Verdict("image_same", "pass", f"{next(iter(short.values()))} on {len(ids)} nodes")]


def model(scope: Scope) -> Iterable[Verdict]:
    """The same files, of the same size and content. Sampled unless `check --full` was asked."""
    dep = scope.dep
    if dep is None or not scope.ours or dep.engine == "sim":
        return [Verdict("model_same", "not_applicable", "no model folder asked for")]
    if not dep.model.startswith("/"):
        said = f"{dep.model} is a name, not a folder: each node takes its own copy"
        return [Verdict("model_same", "unknown", said, "give the folder's path in model = to have its files compared")]
    gone = {n: s.model_why or "not there" for n, s in scope.others.items() if s.model is None}
    if gone:
        where = differing(gone)
        status = "fail" if any("not there" in why for why in gone.values()) else "unknown"
        return [Verdict("model_same", status, where, f"copy {dep.model} there, or correct model =")]
    lists = {n: s.model or {} for n, s in scope.others.items()}
    first_node, first = next(iter(lists.items()))
    size = sum(int(s) for s, _ in first.values() if s.isdigit())
    for node, files in lists.items():
        wrong = sorted(f for f in first.keys() | files.keys() if first.get(f) != files.get(f))
        if wrong:
            how = [_difference(f, first.get(f), files.get(f), first_node, node) for f in wrong]
            fix = f"rsync -a --checksum {first_node}:{dep.model}/ {node}:{dep.model}/"
            return [Verdict("model_same", "fail", listed(how, 4), fix)]
    unreadable = [f for f, (_, h) in first.items() if h == "unreadable"]
    if unreadable:
        return [Verdict("model_same", "unknown", f"not readable: {listed(unreadable)}", "chmod a+r them")]
    return [Verdict("model_same", "pass", f"{len(first)} files, {size / 2**30:.1f} GiB, on {len(lists)} nodes")]


def _difference(name: str, a: tuple[str, str] | None, b: tuple[str, str] | None, first_node: str, node: str) -> str:
    if a is None or b is None:
        return f"{name} is only on {node if a is None else first_node}"
    if a[0] != b[0]:
        return f"{name} has {a[0]} bytes on {first_node}, {b[0]} on {node}"
    return f"{name} differs in content"


def version_facts(seen: Seen) -> Iterator[tuple[str, str]]:
    """(name, version) of what runs on a node, as far as it told."""
    facts = seen.facts
    vendor = seen.node.devices.vendor
    drivers = {str(r["driver_version"]) for r in gpu_rows(facts, vendor) if r.get("driver_version")}
    yield "gpu.driver", ",".join(sorted(drivers))
    yield "gpu.cuda", cuda_of(facts)
    yield "gpu.name", ",".join(sorted({str(r["name"]) for r in gpu_rows(facts, vendor) if r.get("name")}))
    yield "host.kernel", facts.values.get("host.kernel", "")
    yield "container.engine", (facts.blocks.get("engine_version") or [""])[0]
    for rail in seen.node.rails:
        yield f"rail.{rail.hca}.firmware", facts.of("hca").get(rail.hca, {}).get("fw_ver", "")
    if seen.inside is not None:
        for cells in seen.inside.table("package"):
            if len(cells) >= 2 and cells[0] in MATTER:
                yield f"package.{cells[0]}", cells[1]


MATTER = frozenset({"vllm", "sglang", "torch", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "flashinfer-python", "triton"})


def cuda_of(facts: Facts) -> str:
    """The CUDA version that nvidia-smi's head line says the driver supports."""
    for line in facts.blocks.get("nvidia_smi", [])[:6]:
        if found := re.search(r"CUDA Version: ([\d.]+)", line):
            return found[1]
    return ""


def versions(scope: Scope) -> Iterable[Verdict]:
    """Driver, CUDA, kernel, firmware, packages: one of each. GPUs of another driver may still work: a warning."""
    if alone := _alone("versions", scope):
        return [alone]
    told = {node: dict(version_facts(seen)) for node, seen in scope.others.items()}
    names = list(dict.fromkeys(n for facts in told.values() for n in facts))
    wrong = []
    for name in names:
        values = {node: facts.get(name, "") for node, facts in told.items()}
        if len({v for v in values.values() if v}) > 1:
            wrong.append(f"{name}: {differing(values)}")
    if wrong:
        fix = "one driver, engine and firmware on all nodes; a collective runs at the pace of the slowest"
        return [Verdict("versions", "warn", listed(wrong), fix)]
    known = {n: v for facts in told.values() for n, v in facts.items() if v}
    if not known:
        return [Verdict("versions", "unknown", "no node told any version")]
    shown = [f"{n} {v}" for n, v in known.items() if n in ("gpu.driver", "gpu.cuda", "host.kernel") or "package" in n]
    return [Verdict("versions", "pass", f"{len(known)} versions are equal: {listed(shown)}")]
