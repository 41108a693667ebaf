"""A benchmark client in the engine's image: its result file leaves the container by the job's folder."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace

import pytest

from runners.launchers.docker import Docker
from runners.nodes import jobs
from runners.nodes.tail import Tailer
from tests.lab.fixture import Lab
from tests.lab.test_containers import DEP, ROOT, ended, image
from tests.lab.test_nodes import linked

__all__ = ["image"]  # a fixture for this module, too
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(shutil.which("podman") is None, reason="no podman on this machine: the lab has no containers"),
]
RESULT = "x" * 5_000_000  # more than one answer of the tail holds by default


async def test_a_result_file_written_in_a_container_is_read_in_one_piece(lab: Lab) -> None:
    program = f"import sys; open(sys.argv[1] + '/result.json', 'w').write('x' * {len(RESULT)}); print('told')"
    folder = f"{ROOT}/jobs/tool"
    async with linked(lab.node("node5", root=ROOT)) as link:
        await link.run(f"mkdir -p {ROOT}/bin")
        launch = await Docker().client(link, ROOT, "tool", 300, DEP, ["-c", program, folder], {})
        await jobs.start(link, replace(launch.job, files=("result.json",)))
        assert (await ended(link, "tool")).exit_code == 0
        tailer = Tailer(link)
        tailer.follow("tool", "result.json", 0, 1 << 24)
        async for chunk in tailer:
            assert (chunk.offset, chunk.size, len(chunk.data)) == (0, len(RESULT), len(RESULT))
            assert hashlib.sha256(chunk.data).digest() == hashlib.sha256(RESULT.encode()).digest()
            break
        tailer.close()
