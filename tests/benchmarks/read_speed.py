"""`twinrail read --json` over a large engine log, against `wc -lm` (which decodes) and a decode loop in Python.

    python -m tests.benchmarks.read_speed [--mb N] [--repeats N] [--keep FOLDER]

The logs repeat real samples (tests/data/captures). In batch lines and access lines every figure is drawn anew, or
caches would look better than they are. Three mixes: a busy vLLM server, an SGLang server with three batch lines in ten,
and one that logs nothing but batches. CPU seconds of the child (user and system), repeats interleaved,
medians. The claim: a third of `wc -lm` or better, one core.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
_FIGURE = re.compile(r"(?<=: )(\d+)(\.\d+)?(?=%|,| |$)|(?<=:)(\d{5})(?= - )")
_STAMP = re.compile(r":(\d\d)(?=\])")
_SHARE = 0.3  # SGLang: a line for each prefill, and one for forty steps
_RARE = 0.03
_READ = "import sys\nfrom console.cli import main\nsys.exit(main())"
_DECODE = "import sys\nn = 0\nfor line in open(sys.argv[1], 'rb'):\n    n += len(line.decode('utf-8', 'replace'))\n"


def _redrawn(line: str, rng: random.Random) -> str:
    """The line with other figures of the same size."""

    def draw(match: re.Match[str]) -> str:
        whole = match[1] or match[3]
        digits = str(rng.randrange(10 ** len(whole)))
        return digits + (f".{rng.randrange(10 ** (len(match[2]) - 1)):0{len(match[2]) - 1}d}" if match[2] else "")

    return _STAMP.sub(lambda _: f":{rng.randrange(60):02d}", _FIGURE.sub(draw, line))


def _sample(name: str) -> list[str]:
    return (CAPTURES / name).read_text().splitlines()


def _sglang(share: float, rng: random.Random) -> Iterator[str]:
    """Start-up once, then a share of batch lines between access lines."""
    lines = _sample("sglang-log/v0.5.23-real.log")
    batches = [line for line in lines if " batch, #" in line]
    batches += [line for line in _sample("sglang-log/prefill-decode-single-0.5.9.log") if " batch, #" in line]
    access = [line for line in lines if 'HTTP/1.1" 200' in line]
    yield from lines
    while True:
        yield _redrawn(rng.choice(batches if rng.random() < share else access), rng)


def _vllm(rng: random.Random) -> Iterator[str]:
    yield from _sample("vllm-log/v0.32-real-ngram.log")
    figures = [line for line in _sample("vllm-log/engine-stats-v1-0.17-waiting-preempting.log") if "throughput" in line]
    access = ['(APIServer pid=1) INFO:     192.0.2.7:40312 - "POST /v1/completions HTTP/1.1" 200 OK']
    while True:  # a figures line every ten seconds; requests as often as clients please
        yield _redrawn(rng.choice(figures if rng.random() < _RARE else access), rng)


MIXES: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "vllm": _vllm,
    "sglang, 30 % batches": lambda rng: _sglang(_SHARE, rng),
    "sglang, all batches": lambda rng: _sglang(1.0, rng),
}


def write(path: Path, lines: Iterator[str], size: int) -> None:
    """Eight MiB of lines, repeated up to the size."""
    block, used = [], 0
    while used < min(size, 8 << 20):
        block.append(next(lines))
        used += len(block[-1]) + 1
    raw = ("\n".join(block) + "\n").encode()
    with path.open("wb") as out:
        for _ in range(max(1, size // len(raw))):
            out.write(raw)


def cpu_seconds(command: Sequence[str]) -> float:
    """User and system time of one child."""
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main() -> None:
    """Print the medians and ratios."""
    options = argparse.ArgumentParser()
    options.add_argument("--mb", type=int, default=200)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--keep", type=Path, help="make the logs here, and leave them")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for at, (name, lines) in enumerate(MIXES.items()):
            path = folder / f"mix{at}.log"
            write(path, lines(random.Random(5)), chosen.mb << 20)
            ways = {
                "read": [sys.executable, "-c", _READ, "read", "--json", str(path)],
                "wc -lm": ["wc", "-lm", str(path)],
                "decode": [sys.executable, "-c", _DECODE, str(path)],
            }
            taken: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(chosen.repeats):
                for way, command in ways.items():
                    taken[way].append(cpu_seconds(command))
            median = {way: statistics.median(values) for way, values in taken.items()}
            figures = "  ".join(f"{way} {value:.2f} s" for way, value in median.items())
            speed = path.stat().st_size / median["read"] / 1e6
            ratios = f"{median['wc -lm'] / median['read']:.2f} of wc, {median['decode'] / median['read']:.2f} of decode"
            sys.stdout.write(f"{name}: {figures}  ({speed:.0f} MB/s; {ratios})\n")


if __name__ == "__main__":
    main()
