"""Bring home what a run left on the nodes, and write results/<RUN_ID>/."""

from __future__ import annotations

import asyncio
import logging
import shlex
from dataclasses import replace
from pathlib import Path

from runners.flows.services import Services
from runners.nodes.link import Link, NodeError
from runners.readers import files_of
from store.export.sums import digest_of, write_sums
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
    jobs = [Job(**row) for row in rows]
    wanted = [(job, stream) for job in jobs for stream in ("stdout", "stderr", *files_of(job))]
    found = [await _fetch(services, run, job, stream, target) for job, stream in wanted]
    await services.store.commit([a for a in found if a is not None])
    await asyncio.to_thread(write_tree, services.store, run.run_id, target)
    await asyncio.to_thread(write_sums, target)


async def _fetch(services: Services, run: Run, job: Job, stream: str, target: Path) -> Artifact | None:
    folder, files = FOLDERS.get(job.kind, "hardware"), files_of(job)
    ours = job.kind == "client" and stream == "stdout" and not files  # a tool's stdout is a log, its files are results
    suffix = "" if stream in files else ".jsonl" if ours else ".log" if folder == "server" else ".txt"
    path = f"{folder}/{job.job_id}.{stream}{suffix}"
    remote = f"{job.folder}/{stream}"
    local = target / path
    artifact = Artifact(run_id=run.run_id, path=path, kind=job.kind, node=job.node, source=f"{job.node}:{remote}")
    try:
        local.parent.mkdir(parents=True, exist_ok=True)
        link = await services.cluster.link(job.node)
        lost = await _rolled(link, remote)
        if lost:
            artifact = replace(
                artifact, source=f"{artifact.source} from byte {lost}: what came before is in the store only"
            )
        size = await link.fetch(f"{remote}.kept" if lost else remote, local)
        if lost:
            await link.run(f"rm -f -- {shlex.quote(f'{remote}.kept')}")
    except (NodeError, OSError) as e:
        log.warning("%s not collected: %s", path, e)
        return artifact
    if not size:
        local.unlink(missing_ok=True)
        return None
    if folder == "server" or stream == "stderr" or files:
        await asyncio.to_thread(_mask_file, local)
    return Artifact(
        run_id=run.run_id,
        path=path,
        kind=job.kind,
        node=job.node,
        source=artifact.source,
        size_bytes=local.stat().st_size,
        sha256=digest_of(local),
    )


async def _rolled(link: Link, remote: str) -> int:
    """How many bytes at its head a long stream has given back; the rest is then copied to `.kept`. Raises NodeError."""
    name = shlex.quote(remote)
    copy = f'tail -c +"$(($n + 1))" -- {name} >{name}.kept && echo "$n"'
    done = await link.run(f"[ ! -s {name}.rolled ] || {{ read -r n <{name}.rolled && {copy}; }}", timeout=120)
    word = done.stdout.decode(errors="replace").strip()
    return int(word) if word.isdecimal() and len(word) < 19 else 0


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
