"""What a rank's environment takes from its node: the GID index of its rails, and a file for each process of NCCL."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path

from runners.engines.base import RankCommand
from runners.gates.preflight.base import Facts, parse_facts, usable_gid
from runners.nodes.jobs import SAFE_NAME
from runners.nodes.link import Link
from runners.spec import Deployment, Node

MOST_FILES = 64  # processes of one node whose NCCL output is followed


@cache
def _script() -> str:
    return Path(__file__).with_name("prepare.sh").read_text(encoding="utf-8")


async def placed(
    link: Link, root: str, job_id: str, dep: Deployment, command: RankCommand
) -> tuple[RankCommand, dict[str, str]]:
    """The command with what its node adds, and what was found there, as manifest variables. Raises NodeError."""
    if "NCCL_DEBUG" not in command.env:
        return command, {}  # an engine that speaks no NCCL
    hcas = [r.hca for r in link.node.rails] if len(dep.nodes) > 1 else []
    argv = ["sh", "-c", _script(), "prepare", root, job_id, " ".join(hcas)]
    facts = parse_facts((await link.run(shlex.join(argv))).stdout.decode("utf-8", "replace"))
    own = rail_env(link.node, facts) if hcas else {}
    if folder := facts.values.get("nccl.folder"):
        own["NCCL_DEBUG_FILE"] = f"{folder}/%h.%p"  # one file a process: lines of two ranks never mix
    added = {k: v for k, v in own.items() if k not in command.env}
    found = {f"rail.{h}.gid_index": str(g[0]) for h in hcas if (g := usable_gid(facts, h))}
    return replace(command, env={**command.env, **added}), {**found, **{f"env.{k}": v for k, v in added.items()}}


def rail_env(node: Node, facts: Facts) -> dict[str, str]:
    """NCCL_IB_GID_INDEX when one index (RoCE v2 with IPv4) fits all rails of the node; else NCCL 2.21+ is told which
    kind of GID to look for on each."""
    found = [usable_gid(facts, rail.hca) for rail in node.rails]
    indices = {gid[0] for gid in found if gid}
    if not indices or None in found:
        return {}
    if len(indices) == 1:
        return {"NCCL_IB_GID_INDEX": str(indices.pop())}
    return {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}


async def nccl_files(link: Link, root: str, job_id: str) -> list[str]:
    """Streams of the job that NCCL's processes have begun: names beside stdout, linked into its folder. Raises
    NodeError."""
    folder, job = shlex.quote(f"{root}/nccl/{job_id}"), shlex.quote(f"{root}/jobs/{job_id}")
    done = await link.run(
        f'cd {folder} 2>/dev/null && cd {job} && for f in {folder}/*; do [ -f "$f" ] || continue; '
        'n=nccl.${f##*/}; [ -e "$n" ] || ln -s "$f" "$n" 2>/dev/null; echo "$n"; done'
    )
    names = [line for line in done.stdout.decode("utf-8", "replace").split() if SAFE_NAME.fullmatch(line)]
    return sorted(set(names))[:MOST_FILES]
