"""The operator's own command hears of a run's end, and can break nothing."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from runners import notify
from store.records import Run

RUN = Run(
    run_id="r1",
    kind="run",
    deployment="d",
    plan="D2",
    created_wall_ns=0,
    ended_wall_ns=120_000_000_000,
    outcome="OOM",
    detail="rank 3; it's $HOME `id`",
    results_dir="/results/r1",
)


async def test_the_command_gets_the_run_in_its_environment_and_never_in_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "tell me.py"
    script.write_text("import os, sys; open(sys.argv[1], 'w').write('|'.join(os.environ['TWINRAIL_' + k] for k in "
                      "('RUN', 'OUTCOME', 'SECONDS', 'DETAIL', 'TEXT')))")  # fmt: skip
    await notify.tell_end(f"{sys.executable} '{script}' {tmp_path}/told", RUN)
    told = (tmp_path / "told").read_text()
    assert told == "r1|OOM|120|rank 3; it's $HOME `id`|twinrail: D2 ended OOM after 2 min"


@pytest.mark.parametrize(
    ("command", "said"),
    [("/no/such/thing", "No such file"), ("false", "exit code 1"), ("a 'b", "No closing quotation")],
)
async def test_a_command_that_fails_is_logged(command: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    await notify.tell_end(command, RUN)
    assert said in caplog.text


async def test_a_command_that_does_not_end_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify, "LIMIT_S", 0.2)
    async with asyncio.timeout(10):
        await notify.tell_end("sleep 600", RUN)
    assert "killed" in caplog.text


async def test_without_a_command_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    await notify.tell_end(None, RUN)
    assert not caplog.text
