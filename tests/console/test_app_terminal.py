"""The console in a real pseudo-terminal: what it leaves behind, however it ends, and how it bears being resized."""

from __future__ import annotations

import base64
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


TRUE_COLOUR = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with opened(tmp_path, TRUE_COLOUR) as it:
        yield it


@contextlib.contextmanager
def opened(tmp_path: Path, more: dict[str, str]) -> Iterator[Terminal]:
    """The console over a scene in a terminal of 120x36 with these variables."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
    plain = {k: v for k, v in os.environ.items() if k not in ("TERM", "COLORTERM", "NO_COLOR")}
    environment = {**plain, **more}
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


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_ctrl_z_gives_the_terminal_back_and_continuing_takes_it_again(terminal: Terminal) -> None:
    os.write(terminal.master, b"\x1a")
    end = time.monotonic() + 40
    while state_of(terminal.process.pid) != "T":
        assert time.monotonic() < end, "it did not stop"
        terminal.read_for(0.2)
    terminal.read_for(0.2)
    for mode in RESTORED:
        assert mode in terminal.said, f"{mode!r} was not written"
    terminal.said = b""
    terminal.process.send_signal(signal.SIGCONT)
    terminal.until(ALT_SCREEN_ON)
    terminal.until(b"baseline")
    os.write(terminal.master, b"2")
    terminal.until(b"STEADY")


def test_y_copies_the_panel_by_osc_52(terminal: Terminal) -> None:
    os.write(terminal.master, b"2")
    terminal.until(b"STEADY")
    os.write(terminal.master, b"\ty")
    terminal.until(b"\x1b]52;c;")
    terminal.until(b"copied")
    found = re.search(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)(\a|\x1b\\)", terminal.said)
    assert found
    assert "TTFT ms" in base64.b64decode(found[1]).decode()


SGR = re.compile(rb"\x1b\[([0-9;]*)m")


def colours(said: bytes) -> set[str]:
    """Kinds of colour in what was written: 16, 256, true."""
    kinds = set()
    for m in SGR.finditer(said):
        codes = m[1].split(b";")
        if b"38" in codes or b"48" in codes:
            at = codes.index(b"38" if b"38" in codes else b"48")
            kinds.add({b"2": "true", b"5": "256"}.get(codes[at + 1], "?"))
        elif any(30 <= int(c) <= 37 or 40 <= int(c) <= 47 or 90 <= int(c) <= 107 for c in codes if c):
            kinds.add("16")
    return kinds


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"TERM": "screen-256color"}, {"256"}),
        ({"TERM": "xterm-16color", "TWINRAIL_MOUSE": "0"}, {"16"}),
    ],
    ids=["tmux-256", "16-no-mouse"],
)
def test_colours_are_those_that_the_terminal_has(tmp_path: Path, variables: dict[str, str], wanted: set[str]) -> None:
    with opened(tmp_path, variables) as it:
        os.write(it.master, b"2")
        it.until(b"thermal")
        assert max(colours(it.said), key=["16", "256", "true"].index) in wanted, "none beyond what it has"
        assert (b"\x1b[?1000h" in it.said) is ("TWINRAIL_MOUSE" not in variables)


def inks(said: bytes) -> list[tuple[int, int, int]]:
    """The true colours that were written."""
    found = re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)", said)
    return [(int(r), int(g), int(b)) for r, g, b in found]


@pytest.mark.parametrize("no_color", [False, True])
def test_no_color_leaves_greys_only_and_the_marks(tmp_path: Path, no_color: bool) -> None:
    with opened(tmp_path, {**TRUE_COLOUR, **({"NO_COLOR": "1"} if no_color else {})}) as it:
        os.write(it.master, b"2")
        it.until("▲".encode())
        coloured = [ink for ink in inks(it.said) if max(ink) - min(ink) > 2]
        assert bool(coloured) is not no_color
