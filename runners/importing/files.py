"""Which reader a launch file needs, and several files (one a node) as one deployment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from runners.formats.reader import decoded
from runners.importing.compose import read_compose
from runners.importing.deployment import build
from runners.importing.kubernetes import read_kubernetes
from runners.importing.launches import Script, read_script
from runners.importing.yaml_subset import YamlError

MAX_SCRIPT: Final = 8 * 1024 * 1024  # a launch script is small; anything larger is another kind of file


class NotAScriptError(ValueError):
    """The file cannot be a launch script, a compose file or a manifest."""


def _is_kubernetes(source: str) -> bool:
    return all(re.search(rf"^{key}:\s*\S", source, re.MULTILINE) for key in ("apiVersion", "kind"))


def _is_compose(path: Path, source: str) -> bool:
    if path.suffix in (".yml", ".yaml"):
        return True
    return bool(re.search(r"^services:\s*$", source, re.MULTILINE)) and not source.startswith("#!")


def read_file(path: Path) -> Script:
    """Launches of one file. Raises OSError and NotAScriptError."""
    with path.open("rb") as handle:
        raw = handle.read(MAX_SCRIPT + 1)
    if len(raw) > MAX_SCRIPT or b"\0" in raw[:4096]:
        raise NotAScriptError(f"{path.name} is no launch script")
    source = decoded(raw)
    kubernetes = _is_kubernetes(source) and not source.startswith("#!")
    if not kubernetes and not _is_compose(path, source):
        return read_script(source)
    try:
        return read_kubernetes(source) if kubernetes else read_compose(source)
    except YamlError as error:
        raise NotAScriptError(f"{path.name}: {error}") from error


def import_files(paths: Sequence[Path]) -> dict[str, Any]:
    """One deployment of one or several files (two nodes that differ by rank only).

    {deployment, commands: [{node_rank, argv, env}], unplaced: [{line, text}]}; with several files each entry of
    commands and unplaced names its file. Raises OSError and NotAScriptError.
    """
    merged = Script()
    several = len(paths) > 1
    for path in paths:
        script = read_file(path)
        merged.launches += script.launches
        merged.unplaced += [{**item, "file": path.name} for item in script.unplaced] if several else script.unplaced
    name = re.sub(r"[^\w-]+", "-", paths[0].stem).strip("-") or "imported"
    return build(merged, name)
