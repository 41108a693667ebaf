"""Bring home what a run left on the nodes, and write results/<RUN_ID>/."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from pathlib import Path

from runners.flows.services import Services
from runners.nodes.link import NodeError
from store.export.tree import write_tree
from store.masking import mask_text
from store.queries import literal
from store.records import Artifact, Job, Run

log = logging.getLogger("twinrail.collect")

# job kind -> folder of the results tree
FOLDERS = {"server": "server", "client": "requests", "profiler": "profiles"}


async def collect(services: Services, run: Run) -> None:
    """Copy the job files of the run, then write the tree. A file that cannot be had is named in the artifacts."""
    target = Path(run.results_dir or services.inventory.results_path / run.run_id)
    rows = services.store.query(f"from jobs where run_id = {literal(run.run_id)} order by started_wall_ns").dicts()
    wanted = [(Job(**row), stream) for row in rows for stream in ("stdout", "stderr")]
    found = [await _fetch(services, run, job, stream, target) for job, stream in wanted]
    await services.store.commit([a for a in found if a is not None])
    await asyncio.to_thread(write_tree, services.store, run.run_id, target)


async def _fetch(services: Services, run: Run, job: Job, stream: str, target: Path) -> Artifact | None:
    folder = FOLDERS.get(job.kind, "hardware")
    suffix = "jsonl" if job.kind == "client" and stream == "stdout" else "log" if folder == "server" else "txt"
    path = f"{folder}/{job.job_id}.{stream}.{suffix}"
    remote = f"{job.folder}/{stream}"
    local = target / path
    artifact = Artifact(run_id=run.run_id, path=path, kind=job.kind, node=job.node, source=f"{job.node}:{remote}")
    try:
        local.parent.mkdir(parents=True, exist_ok=True)
        size = await (await services.cluster.link(job.node)).fetch(remote, local)
    except (NodeError, OSError) as e:
        log.warning("%s not collected: %s", path, e)
        return artifact
    if not size:
        local.unlink(missing_ok=True)
        return None
    if folder == "server" or stream == "stderr":
        await asyncio.to_thread(_mask_file, local)
    with local.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    return Artifact(
        run_id=run.run_id,
        path=path,
        kind=job.kind,
        node=job.node,
        source=artifact.source,
        size_bytes=local.stat().st_size,
        sha256=digest,
    )


def _mask_file(path: Path) -> None:
    """Logs are somebody else's text: what leaves for a colleague carries no secret."""
    masked = path.with_suffix(".masked")
    with (
        path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as source,
        masked.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as sink,
    ):
        while line := source.readline(1 << 20):  # an endless line is read in pieces
            sink.write(mask_text(line))
    masked.replace(path)
