"""reproduce.sh: an equivalent, readable script that repeats a run with `twinrail run` where twinrail is installed, and
says every command for those who have no twinrail."""

from __future__ import annotations

import shlex
from typing import Any

import orjson

from store.text import plain


def reproduce_script(manifest: dict[str, Any], commands: list[dict[str, Any]]) -> str:
    """The script. With a twinrail.toml of the same names beside it (or --config) it runs the same cases again."""
    run = manifest["run"]
    options = orjson.loads(run["spec"]) if run["spec"] else {}
    again = ["twinrail", "run", *(run["plan"] or "").split()]
    again += ["--deployment", run["deployment"] or "", "--repeats", str(options.get("repeats", 1))]
    again += ["--keep"] if options.get("keep") else []
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
