"""Kubernetes manifests (Pod, Deployment, StatefulSet, LeaderWorkerSet and what else holds a pod template).

Each pod whose container starts an engine is a launch. A group's pods get the index that the cluster would give them, so
that one template for all ranks becomes one command a rank. Scripts of ConfigMaps in the same file are followed.
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from runners.importing.compose import block_of
from runners.importing.docker_args import Container
from runners.importing.launches import Launch, Script, launches_of
from runners.importing.yaml_subset import Map, load

_REFERENCE = re.compile(r"\$\$\(|\$\(([A-Za-z_][\w.-]*)\)")
_POD_OPTIONS: Final = {"hostNetwork": ("--network", "host"), "hostIPC": ("--ipc", "host"), "hostPID": ("--pid", "host")}
_POD_PLACED: Final = frozenset({"runtimeClassName", *_POD_OPTIONS})
_PLACED: Final = frozenset({"name", "image", "command", "args", "env", "workingDir", "securityContext"})
_INDEX_LABELS: Final = ("worker-index", "pod-index", "job-completion-index")
MAX_PODS: Final = 64


@dataclass(slots=True)
class _Pod:
    """One pod: its spec, and the names that the cluster sets in it."""

    spec: Map
    index: int
    given: dict[str, str] = field(default_factory=dict)


def read_kubernetes(source: str) -> Script:
    """Launches of all documents of a manifest and what has no place. Raises YamlError."""
    lines = source.splitlines()
    documents = [item for item in map(load, _documents(source)) if isinstance(item, Map)]
    data = [item["data"] for item in documents if item.get("kind") == "ConfigMap" and isinstance(item.get("data"), Map)]
    files = {name: str(text) for item in data for name, text in item.items()}
    script = Script()
    placed: set[int] = set()
    for item in documents:
        for pod in _pods(item):
            for container in pod.spec["containers"]:
                if isinstance(container, Map):
                    _add(script, _launches(pod, container, files, placed))
                    started = bool(placed & set(container.lines.values()))
                    words = _words(container.get("command")) + _words(container.get("args")) if started else []
                    run = {PurePosixPath(part).name for word in words for part in word.split()}
                    placed |= {held.lines[name] for held in data for name in run & held.keys()}
    for item in documents:
        if _holds(item, placed):
            script.unplaced += _left_over(item, placed, lines)
        else:
            text = "\n".join(block_of(lines, at) for at in item.lines.values())
            script.unplaced.append({"line": min(item.lines.values(), default=1), "text": text})
    return script


def _add(script: Script, found: Script) -> None:
    """Take over what one container gave; copies of a pod that start the same are one launch."""
    known = [(item.argv, item.env) for item in script.launches]
    script.launches += [item for item in found.launches if (item.argv, item.env) not in known]
    script.unplaced += [item for item in found.unplaced if item not in script.unplaced]


def _documents(source: str) -> Iterator[str]:
    """Each document with blank lines before it, so that its keys keep their line numbers."""
    held: list[str] = []
    for at, line in enumerate(source.splitlines()):
        if re.match(r"---(\s|\Z)", line):
            yield "\n".join(held)
            held = [""] * (at + 1)
        else:
            held.append(line)
    yield "\n".join(held)


def _pods(document: Map) -> Iterator[_Pod]:
    """The pods of one document: templates with as many copies as differ by their index."""
    metadata, spec = document.get("metadata"), document.get("spec")
    name = str(metadata.get("name")) if isinstance(metadata, Map) else ""
    if not isinstance(spec, Map):
        return
    group = spec.get("leaderWorkerTemplate")
    if isinstance(group, Map):
        size = min(_count(group.get("size")), MAX_PODS)
        worker = _pod_spec(group.get("workerTemplate"))
        leader = _pod_spec(group.get("leaderTemplate")) or worker
        for index in range(size):
            chosen = worker if index else leader
            if chosen is not None:
                yield _Pod(chosen, index, {"LWS_GROUP_SIZE": str(size), "LWS_WORKER_INDEX": str(index)})
        return
    copies = min(_count(spec.get("replicas")), MAX_PODS) if document.get("kind") == "StatefulSet" else 1
    for found in _specs(document, 0):
        for index in range(copies):
            yield _Pod(found, index, {"HOSTNAME": f"{name}-{index}"} if copies > 1 else {})


def _count(value: Any) -> int:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 6 else 1


def _pod_spec(template: Any) -> Map | None:
    spec = template.get("spec") if isinstance(template, Map) else None
    return spec if isinstance(spec, Map) and isinstance(spec.get("containers"), list) else None


def _specs(node: Any, depth: int) -> Iterator[Map]:
    """Every pod spec below a node: operators of all kinds (Ray, Dynamo, KServe) carry them somewhere."""
    if depth > 40:
        return
    if isinstance(node, Map) and isinstance(node.get("containers"), list):
        yield node
    for item in node.values() if isinstance(node, Map) else node if isinstance(node, list) else ():
        yield from _specs(item, depth + 1)


def _launches(pod: _Pod, container: Map, files: dict[str, str], placed: set[int]) -> Script:
    """What one container of one pod starts; the keys that found a place go into `placed`, by line."""
    env = _environment(pod, container)
    known = {**pod.given, **env}
    options, mounts, used = _options(pod.spec, container)
    made = Container(
        "run",
        str(container.get("image")) if container.get("image") is not None else None,
        [_expanded(word, known) for key in ("command", "args") for word in _words(container.get(key))],
        options,
        known,
        [],
        mounts,
    )
    line = container.lines.get("args", container.lines.get("command", min(container.lines.values(), default=1)))
    found = launches_of(made, "kubernetes", line, files)
    for launch in found.launches:
        _own_env(launch, env, pod)
    if found.launches:
        placed |= used | {at for key, at in container.lines.items() if key in _PLACED}
        placed |= {at for key, at in pod.spec.lines.items() if key in _POD_PLACED}
    return found


def _own_env(launch: Launch, env: dict[str, str], pod: _Pod) -> None:
    """What the cluster sets by itself is no setting of the deployment."""
    for name, value in pod.given.items():
        if name not in env and launch.env.get(name) == value:
            del launch.env[name]


def _words(value: Any) -> list[str]:
    return [str(item) for item in value if item is not None] if isinstance(value, list) else []


def _expanded(text: str, env: dict[str, str]) -> str:
    """`$(NAME)` by the container's environment; `$$(` is literal; a name without a value stays as it is."""

    def put(match: re.Match[str]) -> str:
        return "$(" if match[0] == "$$(" else env.get(match[1], match[0])

    return _REFERENCE.sub(put, text)


def _environment(pod: _Pod, container: Map) -> dict[str, str]:
    env: dict[str, str] = {}
    items = container.get("env")
    for item in items if isinstance(items, list) else []:
        if not isinstance(item, Map) or item.get("name") is None:
            continue
        name = str(item["name"])
        if "value" in item:
            env[name] = _expanded(str(item["value"] or ""), {**pod.given, **env})
        else:
            index = any(label in str(item.get("valueFrom")) for label in _INDEX_LABELS)
            env[name] = str(pod.index) if index else f"${name}"
    return env


def _options(spec: Map, container: Map) -> tuple[list[tuple[str, str | None]], list[str], set[int]]:
    """(container options, mounts, lines of the keys that they came from)."""
    used: set[int] = set()
    options: list[tuple[str, str | None]] = [
        option for key, option in _POD_OPTIONS.items() if str(spec.get(key)).lower() == "true"
    ]
    if spec.get("runtimeClassName"):
        options.append(("--runtime", str(spec["runtimeClassName"])))
    if container.get("workingDir"):
        options.append(("--workdir", str(container["workingDir"])))
    security = container.get("securityContext")
    if isinstance(security, Map):
        if str(security.get("privileged")).lower() == "true":
            options.append(("--privileged", None))
        capabilities = security.get("capabilities")
        added = capabilities.get("add") if isinstance(capabilities, Map) else None
        options += [("--cap-add", str(item)) for item in added or [] if item is not None]
    resources = container.get("resources")
    for part in ("requests", "limits"):
        wanted = resources.get(part) if isinstance(resources, Map) else None
        for key, value in wanted.items() if isinstance(wanted, Map) else ():
            if key.endswith("/gpu") and isinstance(wanted, Map):
                used.add(wanted.lines[key])
                options = [item for item in options if item[0] != "--gpus"] + [("--gpus", str(value))]
    mounts: list[str] = []
    volumes = {str(item.get("name")): item for item in spec.get("volumes") or [] if isinstance(item, Map)}
    for item in container.get("volumeMounts") or []:
        volume = volumes.get(str(item.get("name"))) if isinstance(item, Map) else None
        if volume is None or not _mounted(item, volume, options, mounts):
            continue
        used |= {*item.lines.values(), *volume.lines.values()}
    return options, mounts, used


def _mounted(item: Map, volume: Map, options: list[tuple[str, str | None]], mounts: list[str]) -> bool:
    """Place one volume: a folder of the node is a mount, memory at /dev/shm its size; others have no place."""
    target, folder, empty = str(item.get("mountPath")), volume.get("hostPath"), volume.get("emptyDir")
    if isinstance(folder, Map) and folder.get("path"):
        tail = ":ro" if str(item.get("readOnly")).lower() == "true" else ""
        mounts.append(f"{folder['path']}:{target}{tail}")
        return True
    if target == "/dev/shm" and isinstance(empty, dict) and empty.get("sizeLimit"):
        options.append(("--shm-size", re.sub(r"([KMGT])i?\Z", lambda unit: unit[1].lower(), str(empty["sizeLimit"]))))
        return True
    return False


_SILENT: Final = frozenset({"apiVersion", "kind", "size"})


def _left_over(node: Any, placed: set[int], lines: list[str]) -> list[dict[str, Any]]:
    """Keys without a place, as written; below a key with a place in it only the rest is listed."""
    found: list[dict[str, Any]] = []
    if isinstance(node, list):
        return [text for item in node for text in _left_over(item, placed, lines)]
    for key, value in node.items() if isinstance(node, Map) else ():
        line = node.lines.get(key, 0)
        named = key == "metadata" and isinstance(value, Map) and set(value) == {"name"}
        if line in placed or key in _SILENT or named or line in {item["line"] for item in found}:
            continue
        if _holds(value, placed):
            found += _left_over(value, placed, lines)
        else:
            found.append({"line": line, "text": block_of(lines, line)})
    return found


def _holds(node: Any, placed: set[int]) -> bool:
    if isinstance(node, list):
        return any(_holds(item, placed) for item in node)
    if not isinstance(node, Map):
        return False
    return any(line in placed for line in node.lines.values()) or any(_holds(item, placed) for item in node.values())
