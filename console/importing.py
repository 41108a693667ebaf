"""`twinrail import`: an existing launch script, docker command or compose file becomes a deployment. Nothing is run."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from runners.importing.files import NotAScriptError, import_files

EXIT_DONE, EXIT_NEGATIVE, EXIT_USAGE = 0, 1, 2


def import_file(files: Path | str | Sequence[Path | str], *, json_out: bool) -> int:
    """Print what the files start. Several files are the nodes of one deployment.

    Exit codes: 0 a deployment was found, 1 the file starts no engine, 2 not readable.
    """
    paths = [Path(files)] if isinstance(files, Path | str) else [Path(item) for item in files]
    if not paths:
        sys.stderr.write("import: name a file\n")
        return EXIT_USAGE
    try:
        found = import_files(paths)
    except OSError as error:
        sys.stderr.write(f"import: {error.filename}: {error.strerror}\n")
        return EXIT_USAGE
    except NotAScriptError as error:
        sys.stderr.write(f"import: {error}\n")
        return EXIT_USAGE
    if json_out:
        sys.stdout.write(json.dumps({"schema": 1, **found}, ensure_ascii=False) + "\n")
    else:
        _show(found)
    return EXIT_DONE if found["deployment"] is not None else EXIT_NEGATIVE


def toml_of(deployment: dict[str, Any]) -> str:
    """The deployment as a table for twinrail.toml: the keys that the configuration knows."""
    name = deployment["name"]
    lines = [f"[deployments.{json.dumps(name) if not name.replace('-', '').isalnum() else name}]"]
    container = deployment.get("container") or {}
    deployment = {**deployment, **_container_keys(container)} if deployment.get("image") else deployment
    for key in (
        "engine",
        "launcher",
        "image",
        "mounts",
        "shm_size",
        "container_flags",
        "model",
        "served_model",
        "nodes",
        "topology",
        "host",
        "port",
        "flags",
        "env",
    ):
        value = deployment.get(key)
        if value not in (None, [], {}):
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


# what the launcher sets by itself: name, detaching, network, the topology's GPUs, the IPC namespace without shm_size
_LAUNCHERS: Final = frozenset(
    {
        "--name",
        "--detach",
        "--interactive",
        "--tty",
        "--rm",
        "--network",
        "--ipc",
        "--gpus",
        "--entrypoint",
        "--restart",
    }
    | {"-d", "-i", "-t", "--shm-size"}
)


def _container_keys(container: dict[str, Any]) -> dict[str, Any]:
    """The deployment's keys for a container's options."""
    options = container.get("options") or []
    flags = [f"{name}={value}" if value is not None else name for name, value in options if name not in _LAUNCHERS]
    return {
        "shm_size": next((value for name, value in options if name == "--shm-size"), None),
        "container_flags": flags,
    }


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _safe(text: str, limit: int = 400) -> str:
    text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= limit else text[:limit] + " ..."


def _show(found: dict[str, Any]) -> None:
    out = sys.stdout
    if found["deployment"] is None:
        out.write("no engine is started here\n")
    else:
        out.write(_safe_lines(toml_of(found["deployment"])))
        if found["deployment"]["unresolved"]:
            out.write("\n# only the node's shell can expand:\n")
            for word in found["deployment"]["unresolved"]:
                out.write(f"#   {_safe(word)}\n")
        out.write("\n# commands it stands for\n")
    for item in found["commands"]:
        env = " ".join(f"{name}={shlex.quote(value)}" for name, value in item["env"].items())
        rank = "?" if item["node_rank"] is None else item["node_rank"]
        words = shlex.join([*item["wrapper"], *item["argv"]])
        out.write(f"# node {rank}: {_safe((env + ' ') if env else '', 4000)}{_safe(words, 8000)}\n")
    if found["unplaced"]:
        out.write("\n# without a place in a deployment (kept for you to judge)\n")
        for item in found["unplaced"]:
            out.write(f"#   line {item['line']}: {_safe(item['text'])}\n")


def _safe_lines(text: str) -> str:
    return "".join(_safe(line, 20_000) + "\n" for line in text.splitlines())
