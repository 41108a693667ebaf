"""Tell the operator that a run has ended: a command of theirs, on the owner's machine."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex

from store.records import Run

log = logging.getLogger("twinrail.notify")
LIMIT_S = 20.0


async def tell_end(command: str | None, run: Run) -> None:
    """Run `command` with TWINRAIL_RUN, _PLAN, _OUTCOME, _DETAIL, _RESULTS, _SECONDS and a sentence in _TEXT.

    What goes wrong is logged and costs the run nothing; a command that does not end is killed after LIMIT_S.
    """
    if not command:
        return
    seconds = ((run.ended_wall_ns or run.created_wall_ns) - run.created_wall_ns) / 1e9
    said = f"twinrail: {run.plan} ended {run.outcome} after {seconds / 60:.0f} min"
    told = {
        "RUN": run.run_id,
        "PLAN": run.plan or "",
        "OUTCOME": run.outcome or "",
        "DETAIL": (run.detail or "")[:2000],
        "RESULTS": run.results_dir or "",
        "SECONDS": f"{seconds:.0f}",
        "TEXT": said,
    }
    env = {**os.environ, **{f"TWINRAIL_{k}": v.replace("\0", "") for k, v in told.items()}}
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command), env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                code = await process.wait()
        except BaseException:
            process.kill()
            raise
    except (OSError, ValueError, TimeoutError) as e:
        log.warning("notify %r: %s", command, str(e) or f"not ended after {LIMIT_S:.0f} s, killed")
        return
    if code:
        log.warning("notify %r ended with exit code %s", command, code)
