"""docker compose files: each service that starts an engine is a launch.

`${NAME:-default}` takes its default (no .env file is read); `$$` is a literal dollar; a name without a default stays
text.
"""

from __future__ import annotations

import re
import shlex
from typing import Any, Final

from runners.importing.docker_args import Container
from runners.importing.launches import Launch, Script, launches_of
from runners.importing.yaml_subset import Map, load

_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)(?:(:?[-+?])([^{}]*(?:\{[^{}]*\}[^{}]*)*))?\}|\$([A-Za-z_]\w*)")
# compose key -> docker option
_OPTIONS: Final = {
    "container_name": "--name",
    "network_mode": "--network",
    "shm_size": "--shm-size",
    "ipc": "--ipc",
    "pid": "--pid",
    "privileged": "--privileged",
    "restart": "--restart",
    "runtime": "--runtime",
    "hostname": "--hostname",
    "user": "--user",
    "working_dir": "--workdir",
    "cap_add": "--cap-add",
    "devices": "--device",
    "ports": "--publish",
    "security_opt": "--security-opt",
    "env_file": "--env-file",
    "extra_hosts": "--add-host",
    "cpuset": "--cpuset-cpus",
    "mem_limit": "--memory",
    "gpus": "--gpus",
}
_PLACED: Final = frozenset({"image", "command", "entrypoint", "environment", "volumes", "ulimits", "deploy", *_OPTIONS})


def interpolated(text: str) -> str:
    """Text after compose's variable substitution, as far as it is known."""

    def put(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        op, operand = match[2], match[3] or ""
        if op in (":-", "-"):
            return interpolated(operand)
        return "" if op in (":+", "+") else match[0]

    return _VARIABLE.sub(put, text)


def _words(value: Any) -> list[str]:
    if isinstance(value, list):
        return [interpolated(str(item)) for item in value if item is not None]
    if value is None:
        return []
    text = interpolated(str(value))
    try:
        return shlex.split(text, comments=False)
    except ValueError:
        return text.split()


def _environment(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(name): f"${name}" if item is None else interpolated(str(item)) for name, item in value.items()}
    env = {}
    for item in value if isinstance(value, list) else []:
        name, equals, text = str(item).partition("=")
        env[name] = interpolated(text) if equals else f"${name}"
    return env


def _mounts(value: Any) -> list[str]:
    found = []
    for item in value if isinstance(value, list) else []:
        if isinstance(item, dict):
            source, target = item.get("source"), item.get("target")
            tail = ":ro" if str(item.get("read_only")) == "true" else ""
            found.append(interpolated(f"{source}:{target}{tail}"))
        else:
            found.append(interpolated(str(item)))
    return found


def _options(service: dict[str, Any]) -> list[tuple[str, str | None]]:
    options: list[tuple[str, str | None]] = []
    for key, option in _OPTIONS.items():
        value = service.get(key)
        for item in value if isinstance(value, list) else [value] if value is not None else []:
            text = interpolated(str(item))
            if key == "privileged":
                options += [(option, None)] if text == "true" else []
            else:
                options.append((option, text))
    limits = service.get("ulimits")
    for name, value in limits.items() if isinstance(limits, dict) else ():
        text = ":".join(str(value.get(part)) for part in ("soft", "hard")) if isinstance(value, dict) else str(value)
        options.append(("--ulimit", f"{name}={text}"))
    devices = service.get("deploy")
    for step in ("resources", "reservations", "devices"):
        devices = devices.get(step) if isinstance(devices, dict) else None
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, dict) and device.get("count"):
            options.append(("--gpus", str(device["count"])))
        elif isinstance(device, dict) and isinstance(device.get("device_ids"), list):
            options.append(("--gpus", "device=" + ",".join(map(str, device["device_ids"]))))
    return options


def read_compose(source: str) -> Script:
    """Launches of a compose file and what has no place. Raises YamlError."""
    loaded = load(source)
    script = Script()
    services = loaded.get("services") if isinstance(loaded, dict) else None
    if not isinstance(loaded, Map) or not isinstance(services, Map):
        return script
    lines = source.splitlines()
    for key, line in loaded.lines.items():
        if key != "services" and not key.startswith("x-") and key not in ("version", "name"):
            script.unplaced.append({"line": line, "text": block_of(lines, line)})
    for name, service in services.items():
        line = services.lines.get(name, 1)
        if not isinstance(service, Map):
            continue
        found = _launches(service, line)
        if not found:
            script.unplaced.append({"line": line, "text": block_of(lines, line)})
            continue
        script.launches += found
        for key, at in service.lines.items():
            if key not in _PLACED:
                script.unplaced.append({"line": at, "text": block_of(lines, at)})
    return script


def _launches(service: Map, line: int) -> list[Launch]:
    image = service.get("image")
    container = Container(
        "run",
        interpolated(str(image)) if image is not None else None,
        [*_words(service.get("entrypoint")), *_words(service.get("command"))],
        _options(service),
        _environment(service.get("environment")),
        [],
        _mounts(service.get("volumes")),
    )
    return launches_of(container, "docker", service.lines.get("command", line)).launches


def block_of(lines: list[str], line: int) -> str:
    """A key with everything indented below it, as written (bounded)."""
    first = lines[line - 1] if 0 < line <= len(lines) else ""
    level = len(first) - len(first.lstrip())
    taken = [first.strip()]
    for text in lines[line : line + 60]:
        deeper = len(text) - len(text.lstrip()) > level - (first.rstrip().endswith(":") and text.lstrip()[:2] == "- ")
        if text.strip() and not deeper:
            break
        if text.strip():
            taken.append(text.strip())
    return "\n".join(taken)
