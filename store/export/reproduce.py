"""reproduce.sh: an equivalent, readable script that repeats a run with `twinrail run` where twinrail is installed, and
says every command for those who have no twinrail."""

from __future__ import annotations

import shlex
from typing import Any

import orjson

from store.text import plain

# Key of an order -> option of the command line, where they differ.
_OPTIONS = {
    "max_concurrency": "max",
    "seconds": "for",
    "vary_one": "vary",
    "declared": "change",
    "stop_at_slo": "stop-at-slo",
    "what": "case",
}
_PLACES = {"start_run": ("run", "what"), "start_search": ("search", "what"), "start_watch": ("watch", "deployment")}
_PERCENT = frozenset({"margin"})


def same_order(run: dict[str, Any]) -> list[str]:
    """The command line that orders the same again."""
    options = orjson.loads(run["spec"]) if run["spec"] else {}
    asked = dict(options.get("asked") or {})
    kind = asked.pop("kind", "start_run")
    if kind == "start_ab":
        words = ["twinrail", "ab", "--run", asked.pop("a"), asked.pop("b")]
    elif not asked:  # a run whose order was not kept
        asked = {"deployment": run["deployment"], "repeats": options.get("repeats", 1), "keep": options.get("keep")}
        words = ["twinrail", "run", *(run["plan"] or "").split()]
    else:
        verb, place = _PLACES[kind]
        what = asked.pop(place, None) or []
        words = ["twinrail", verb, *(what if isinstance(what, list) else [what])]
        if kind != "start_watch":
            asked = {"deployment": run["deployment"], **asked}
    if kind == "start_run":
        asked = {"repeats": options.get("repeats", 1), **asked}
    return [*words, *(w for key, value in asked.items() for w in _option(key, value))]


def _option(key: str, value: Any) -> list[str]:
    if isinstance(value, dict):  # what a case is measured otherwise: --vary name=value
        said = {k: ",".join(map(str, v)) if isinstance(v, list) else v for k, v in value.items()}
        return [w for k, v in said.items() for w in ("--vary", f"{k}={v}")]
    name = "--" + _OPTIONS.get(key, key).replace("_", "-")
    if value is False:
        return ["--climb-on"] if key == "stop_at_slo" else []
    if value is True:
        return [name]
    if isinstance(value, list):
        return [w for v in value for w in (name, str(v))]
    if value is None:
        return []
    return [name, f"{value * 100:g}" if key in _PERCENT else f"{value:g}s" if key == "seconds" else str(value)]


def reproduce_script(manifest: dict[str, Any], commands: list[dict[str, Any]]) -> str:
    """The script. With a twinrail.toml of the same names beside it (or --config) it orders the same again."""
    run = manifest["run"]
    again = same_order(run)
    lines = [
        "#!/bin/sh",
        f"# Repeats run {run['run_id']} (label: reproduce). Needs twinrail and a twinrail.toml with the nodes and the",
        "# deployment of run_manifest.txt; TWINRAIL_CONFIG names the file when it is not ./twinrail.toml.",
        "set -eu",
        f'{shlex.join(again)} ${{TWINRAIL_CONFIG:+--config "$TWINRAIL_CONFIG"}} "$@"',
        "",
        "# Servers and load clients as executed, for reading or running by hand; probes are in probe_cmd.txt:",
    ]
    for c in commands:
        if c["purpose"] == "probe":
            continue
        env = orjson.loads(c["env"]) if c["env"] else {}
        prefix = " ".join(f"{k}={shlex.quote(v)}" for k, v in env.items())
        lines.append(f"#   on {c['node']} ({c['purpose']}): " + plain(f"{prefix} {c['text']}".strip()))
    return "\n".join(lines) + "\n"
