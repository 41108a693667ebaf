"""`jobs`: what runs on the nodes, asked of the nodes themselves, and the removal of what has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from console.verbs import DONE, INFRASTRUCTURE, Place, out, out_json, print_table, run_async, say

if TYPE_CHECKING:
    from runners.spec import Inventory, Node


def run_jobs(place: Place, *, reap: bool, as_json: bool) -> int:
    """List the jobs of every node; with `reap` remove the folders of those that have ended."""
    return run_async(_run_jobs(place.inventory(), reap=reap, as_json=as_json))


async def _run_jobs(inventory: Inventory, *, reap: bool, as_json: bool) -> int:
    found = await asyncio.gather(*(_node_jobs(node, reap=reap) for node in inventory.nodes))
    jobs = [job for rows, _ in found for job in rows]
    problems = [p for _, p in found if p]
    if as_json:
        out_json({"jobs": jobs, "problems": problems})
    else:
        columns = ["node", "job", "state", "exit", "pid", "bytes", "reaped"]
        print_table(columns, [["–" if j[c] is None else str(j[c]) for c in columns] for j in jobs])
        if not jobs and not problems:
            out("no jobs on any node")
    for problem in problems:
        say(f"twinrail: {problem}")
    return INFRASTRUCTURE if problems else DONE


async def _node_jobs(node: Node, *, reap: bool) -> tuple[list[dict[str, Any]], str | None]:
    from runners.nodes import jobs
    from runners.nodes.link import NodeError, open_link

    link = open_link(node)
    try:
        await link.up()
        rows = []
        for job_id, status in sorted((await jobs.list_jobs(link)).items()):
            ended = status.state in ("exited", "gone")
            rows.append(
                {
                    "node": node.name,
                    "job": job_id,
                    "state": status.state,
                    "exit": status.exit_code,
                    "pid": status.pid,
                    "bytes": sum(status.sizes.values()),
                    "reaped": "yes" if reap and ended and await jobs.reap(link, job_id) else None,
                }
            )
    except NodeError as e:
        return [], str(e)
    else:
        return rows, None
    finally:
        await link.close()
