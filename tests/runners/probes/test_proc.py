"""Threads, NUMA and the kernel's log: live processes of this machine, and recorded lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.probes import PROBES, Parsed
from store.records import LogEvent, NumaSample, ThreadSample
from tests.runners.probes.running import CONTEXT, observe

SPIN = "import threading\ndef spin():\n while True: sum(range(9999))\nthreading.Thread(target=spin).start()\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A rank's job folder with a living process below it; the environment of a probe's job beside it."""
    rank, probe = tmp_path / "jobs" / "life.r0", tmp_path / "jobs" / "run.threads.node5"
    rank.mkdir(parents=True)
    probe.mkdir()
    process = subprocess.Popen(["sh", "-c", f'"{sys.executable}" -c "{SPIN}" & wait'], start_new_session=True)
    (rank / "pid").write_text(f"{process.pid}\n")
    yield {"TWINRAIL_JOB_DIR": str(probe)}
    os.killpg(process.pid, 9)
    process.wait()


def threads(parsed: Parsed) -> list[ThreadSample]:
    return [r for r in parsed.records if isinstance(r, ThreadSample)]


def test_main_threads_and_busy_ones_of_a_rank_are_followed(server: dict[str, str]) -> None:
    parsed = observe("threads", lambda p: any(t.tid != t.pid for t in threads(p)), env=server, interval_s=0.1)
    assert parsed.skipped == 0
    busy = next(t for t in threads(parsed) if t.tid != t.pid)
    assert busy.run_ns_total
    assert busy.wait_ns_total is not None
    assert busy.user_ticks is not None
    assert busy.involuntary_switches_total is not None
    assert busy.process
    assert "python" in busy.process
    assert {t.pid for t in threads(parsed) if t.tid == t.pid} >= {busy.pid}
    assert os.getpid() not in {t.pid for t in threads(parsed)}


def test_pages_of_a_rank_are_summed_by_numa_node(server: dict[str, str]) -> None:
    parsed = observe("numa", lambda p: any(isinstance(r, NumaSample) and r.pid for r in p.records), env=server)
    rows = [r for r in parsed.records if isinstance(r, NumaSample)]
    node = next(r for r in rows if r.pid is None)
    assert node.hit_total
    assert node.mem_free_bytes
    assert node.cpus
    pages = [r for r in rows if r.pid]
    assert all((r.pages_bytes is None) == (r.missing is not None) for r in pages)
    if os.geteuid() == 0 and pages[0].pages_bytes is not None:
        assert sum(r.pages_bytes or 0 for r in pages) > 1 << 20


def test_pages_that_may_not_be_read_are_null_with_the_reason() -> None:
    frame = (
        b"#frame numa 10 20\n#process 77 VLLM::Worker_TP1\n#cpus 77 0-31\n#not 77 Permission denied\n"
        b"#process 78 VLLM::Worker_TP2\n#cpus 78 32-63\n#on 78 0 4096\n#on 78 1 8\n#end\n"
    )
    rows = [r for r in PROBES["numa"].parse(frame, CONTEXT).records if isinstance(r, NumaSample)]
    denied = rows[0]
    assert (denied.pid, denied.pages_bytes, denied.missing) == (77, None, "numa_maps: Permission denied")
    assert (denied.process, denied.cpus) == ("VLLM::Worker_TP1", "0-31")
    assert [(r.numa, r.pages_bytes) for r in rows[1:]] == [(0, 4096 * 1024), (1, 8 * 1024)]


def test_a_plain_shell_and_coreutils_are_enough(server: dict[str, str], tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("sh", "date", "sleep", "head", "tail", "cat", "timeout", "df"):
        (bare / name).symlink_to(shutil.which(name) or "")
    env = {**server, "PATH": str(bare)}
    assert threads(observe("threads", lambda p: bool(threads(p)), env=env))
    assert observe("numa", lambda p: bool(p.records), env=env).records
    kernel = observe("kernel", lambda p: False, env=env)
    assert [r.name for r in kernel.records if isinstance(r, LogEvent)] == ["source_unavailable"]


def kernel(*lines: str, mono_s: int = 200_000) -> list[LogEvent]:
    body = "\n".join(lines)
    frame = f"#frame kernel {10**18} {mono_s * 10**9}\n{body}\n#end\n".encode()
    return [r for r in PROBES["kernel"].parse(frame, CONTEXT).records if isinstance(r, LogEvent)]


def test_an_xid_has_its_number_meaning_and_own_instant() -> None:
    (xid,) = kernel("[199990.500000] NVRM: Xid (PCI:0000:05:00): 94, Contained ECC error")
    assert (xid.name, xid.severity) == ("xid", "fatal")
    assert "94" in (xid.detail or "")
    assert "contained ECC" in (xid.detail or "")
    assert xid.wall_ns == 10**18 - 9_500_000_000
    (note,) = kernel("[199990.500000] NVRM: Xid (PCI:0000:05:00): 154, GPU recovery action changed")
    assert note.severity == "info"


def test_a_lost_gpu_is_known_from_lines_without_a_number() -> None:
    (lost,) = kernel(
        "[199990.5] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "[199990.5] NVRM: fallen off the bus and is not responding to commands.",
    )
    assert (lost.name, lost.severity) == ("gpu_lost", "fatal")


def test_only_telling_lines_of_after_the_start_leave_the_node(tmp_path: Path) -> None:
    said = "\\n".join(
        (
            "[    1.000000] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.",
            "[99999999.000000] eth0: link becomes ready",
            "[99999999.100000] NVRM: The NVIDIA GPU 0000:b3:00.0",
            "[99999999.100000] NVRM: fallen off the bus and is not responding to commands.",
            "[99999999.200000] NVRM: Xid (PCI:0000:05:00): 48, DBE",
        )
    )
    (tmp_path / "dmesg").write_text(f"#!/bin/sh\ncase $1 in -*) printf '{said}\\n'; sleep 5;; esac\n")
    (tmp_path / "dmesg").chmod(0o755)
    parsed = observe("kernel", lambda p: len(p.records) >= 2, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert [r.name for r in parsed.records if isinstance(r, LogEvent)] == ["gpu_lost", "xid"]
