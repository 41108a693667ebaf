"""The console in a real pseudo-terminal: what it leaves behind, however it ends, and how it bears being resized."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALT_SCREEN_ON, ALT_SCREEN_OFF = b"\x1b[?1049h", b"\x1b[?1049l"
RESTORED = (ALT_SCREEN_OFF, b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?1003l", b"\x1b[?2004l")


@dataclass
class Terminal:
    """A program on the other side of a pty. `said` is everything it wrote so far."""

    process: subprocess.Popen[bytes]
    master: int
    said: bytes = field(default=b"")

    def read_for(self, seconds: float) -> bytes:
        """Read until so many seconds have passed or the program has ended."""
        end = time.monotonic() + seconds
        new = b""
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self.master], [], [], min(left, 0.1))
            if ready:
                try:
                    new += os.read(self.master, 65536)
                except OSError:  # the other side is closed
                    break
            elif self.process.poll() is not None:
                break
        self.said += new
        return new

    def until(self, text: bytes, seconds: float = 40.0) -> None:
        end = time.monotonic() + seconds
        while text not in self.said:
            assert time.monotonic() < end, f"{text!r} did not appear in {seconds} s: {self.said[-2000:]!r}"
            self.read_for(0.2)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.console.stage", str(tmp_path)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    it = Terminal(process, master)
    try:
        it.until(b"baseline")
        yield it
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        with contextlib.suppress(OSError):
            os.close(master)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_with_the_terminal_as_it_was(terminal: Terminal, number: signal.Signals) -> None:
    assert ALT_SCREEN_ON in terminal.said
    terminal.process.send_signal(number)
    terminal.read_for(20)
    code = terminal.process.wait(10)
    for mode in RESTORED:
        assert mode in terminal.said, f"{mode!r} was not written"
    assert terminal.said.rindex(ALT_SCREEN_OFF) > terminal.said.rindex(ALT_SCREEN_ON)
    if number is not signal.SIGINT:
        assert code == 128 + number


def test_q_leaves_with_zero(terminal: Terminal) -> None:
    os.write(terminal.master, b"q")
    terminal.read_for(20)
    assert terminal.process.wait(10) == 0
    assert ALT_SCREEN_OFF in terminal.said


def test_it_ends_when_its_terminal_goes_away(terminal: Terminal) -> None:
    """Without any signal: it has no controlling terminal here, so the kernel sends no HUP."""
    os.close(terminal.master)
    assert terminal.process.wait(30) is not None


def test_a_storm_of_sizes_leaves_it_alive_and_right(terminal: Terminal) -> None:
    os.write(terminal.master, b"2")
    terminal.until(b"STEADY")
    for columns, rows in [(80, 24), (200, 60), (20, 5), (1, 1), (120, 36), (79, 23), (300, 100), (80, 24)] * 3:
        terminal.resize(columns, rows)
        terminal.read_for(0.05)
    terminal.read_for(2)
    terminal.said = b""
    terminal.resize(100, 30)
    terminal.until(b"TTFT")
    assert terminal.process.poll() is None


def test_untrusted_bytes_of_a_log_never_reach_the_terminal(terminal: Terminal) -> None:
    os.write(terminal.master, b"2")
    terminal.until(b"not markup")
    assert b"owned\x07" not in terminal.said
    assert not re.search(rb"\x1b\]0;", terminal.said), "a log line must not set the title"
    assert b"\xe2\x80\xae" not in terminal.said
