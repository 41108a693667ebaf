"""loadgen beside `vllm bench serve` on one real server, in turns; run by hand.

    python tests/benchmarks/loadgen_vs_peer.py --url http://127.0.0.1:8000 --model qwen2-tiny \
        --tokenizer DIR/models/qwen2-tiny --peer-python DIR/venv/bin/python [-c 4] [--repeats 3]

Prints for each repeat of both clients: tokens per second of client CPU, and the medians of TTFT and TPOT over all
measured requests (window `all`, no filler), then whether the medians agree within the spread of the repeats.

Client CPU is what the client's processes used between its first send and its last end, so start-up and imports are
out of it: /proc is sampled while they run, and both clients stamp with CLOCK_MONOTONIC (the peer's `start_times` are
Python's perf_counter, which is that clock on Linux).
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.runners import recompute

ROOT = Path(__file__).parents[2]
LOADGEN = ROOT / "runners" / "payload" / "loadgen.py"
SAMPLE_S = 0.1


@dataclass(frozen=True)
class Result:
    """One run of one client; times in ms, `cpu_s` within the load."""

    client: str
    tokens: int
    seconds: float
    cpu_s: float
    ttft_ms: float
    tpot_ms: float

    @property
    def per_core(self) -> float:
        return self.tokens / self.cpu_s


def cpu_of_session(session: int) -> float:
    """CPU seconds of all living processes of a session, from the scheduler's own nanosecond counts."""
    used = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                    used += sum(int(task.read_text().split()[0]) for task in folder.glob("task/*/schedstat"))
            except OSError:
                continue
    return used / 1e9


def watch(argv: list[str], log: Path) -> tuple[list[float], list[float]]:
    """Run a client to its end: (monotonic seconds, CPU seconds used so far) sampled meanwhile."""
    moments, used = [0.0], [0.0]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    errors = log.with_suffix(".err")
    with log.open("wb") as sink, errors.open("wb") as complaints:
        process = subprocess.Popen(argv, stdout=sink, stderr=complaints, start_new_session=True, env=environment)
        while process.poll() is None:
            used.append(cpu_of_session(process.pid))
            moments.append(time.monotonic())
            time.sleep(SAMPLE_S)
    if process.returncode:
        raise SystemExit(f"{shlex.join(argv)}\nended with {process.returncode}:\n{errors.read_text()[-3000:]}")
    return moments, used


def at(moment: float, moments: list[float], used: list[float]) -> float:
    """CPU seconds used at `moment`, interpolated."""
    right = min(max(bisect.bisect(moments, moment), 1), len(moments) - 1)
    left = right - 1
    share = (moment - moments[left]) / max(moments[right] - moments[left], 1e-9)
    return used[left] + (used[right] - used[left]) * min(max(share, 0.0), 1.0)


def ours(arguments: argparse.Namespace, seed: int, folder: Path) -> Result:
    spec = {
        "url": arguments.url, "model": arguments.model, "isl": arguments.isl, "osl": arguments.osl,
        "concurrency": arguments.concurrency, "requests": arguments.requests, "warmup": arguments.warmups,
        "filler": False, "seed": seed, "vocab": arguments.vocab, "budget_s": 600,
    }  # fmt: skip
    file, lines_file = folder / f"spec{seed}.json", folder / f"ours{seed}.jsonl"
    file.write_text(json.dumps(spec))
    moments, used = watch([arguments.python, str(LOADGEN), "--spec", str(file)], lines_file)
    lines = recompute.read(lines_file.read_bytes())
    whole = recompute.windows(lines)["all"]
    if whole is None or whole["requests"]["ok"] != arguments.requests:
        raise SystemExit(f"loadgen: not all requests ended well, see {lines_file}")
    measured = [line for line in lines if line["t"] == "done" and line["measured"]]
    start = min(line["sent_ns"] for line in measured) / 1e9
    end = max(line["end_ns"] for line in measured) / 1e9
    cpu = at(end, moments, used) - at(start, moments, used)
    return Result(
        "loadgen", int(whole["tokens"]["output"]), end - start, cpu, whole["ttft_ms"]["p50"], whole["tpot_ms"]["p50"]
    )


def peer_argv(arguments: argparse.Namespace, seed: int, folder: Path) -> list[str]:
    return [
        arguments.peer_python, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "openai",
        "--base-url", arguments.url, "--endpoint", "/v1/completions", "--model", arguments.model,
        "--tokenizer", arguments.tokenizer, "--dataset-name", "random",
        "--random-input-len", str(arguments.isl), "--random-output-len", str(arguments.osl), "--ignore-eos",
        "--num-prompts", str(arguments.requests), "--max-concurrency", str(arguments.concurrency),
        "--num-warmups", str(arguments.warmups), "--seed", str(seed), "--temperature", "0",
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99", "--disable-tqdm",
        "--save-result", "--save-detailed", "--result-dir", str(folder), "--result-filename", f"peer{seed}.json",
    ]  # fmt: skip


def peers(arguments: argparse.Namespace, seed: int, folder: Path) -> Result:
    moments, used = watch(peer_argv(arguments, seed, folder), folder / f"peer{seed}.log")
    told: dict[str, Any] = json.loads((folder / f"peer{seed}.json").read_text())
    if told["completed"] != arguments.requests:
        raise SystemExit(f"the peer ended {told['completed']} of {arguments.requests} requests well")
    starts, latencies = told["start_times"], told["latencies"]
    start, end = min(starts), max(a + b for a, b in zip(starts, latencies, strict=True))
    cpu = at(end, moments, used) - at(start, moments, used)
    return Result(
        "vllm bench serve",
        told["total_output_tokens"],
        end - start,
        cpu,
        told["median_ttft_ms"],
        told["median_tpot_ms"],
    )


def compare(name: str, values: dict[str, list[float]]) -> str:
    """One line: medians of the repeats, their ranges, and whether these overlap or lie closer than they are wide."""
    (one, a), (two, b) = values.items()
    gap = abs(statistics.median(a) - statistics.median(b))
    width = max(max(a) - min(a), max(b) - min(b))
    verdict = "within" if gap <= width else "outside"
    return (
        f"{name}: {one} {statistics.median(a):.3f} [{min(a):.3f} .. {max(a):.3f}], {two} {statistics.median(b):.3f} "
        f"[{min(b):.3f} .. {max(b):.3f}]: difference {gap:.3f} is {verdict} the spread of repeats {width:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True, help="as the server names it")
    parser.add_argument("--tokenizer", required=True, help="folder; only the peer needs it")
    parser.add_argument("--peer-python", required=True, help="interpreter with vllm installed")
    parser.add_argument("--python", default=sys.executable, help="interpreter with aiohttp, for loadgen")
    parser.add_argument("-c", "--concurrency", type=int, default=4)
    parser.add_argument("--isl", type=int, default=256)
    parser.add_argument("--osl", type=int, default=128)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--warmups", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--vocab", type=int, nargs=2, default=[300, 4000])
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() % 10**6, help="fresh by default: no prompt comes twice"
    )
    arguments = parser.parse_args()
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("peer:", shlex.join(peer_argv(arguments, arguments.seed, folder)))
        print("client              tokens  seconds    CPU s  tokens/s/core   TTFT ms   TPOT ms")
        for repeat in range(arguments.repeats):
            for client in (ours, peers):
                result = client(arguments, arguments.seed + 2 * repeat + (client is peers), folder)
                results.append(result)
                print(
                    f"{result.client:18} {result.tokens:7d} {result.seconds:8.2f} {result.cpu_s:8.2f} "
                    f"{result.per_core:14.0f} {result.ttft_ms:9.2f} {result.tpot_ms:9.3f}",
                    flush=True,
                )
    by_client = {name: [r for r in results if r.client == name] for name in ("loadgen", "vllm bench serve")}
    print(compare("TTFT p50 ms", {name: [r.ttft_ms for r in runs] for name, runs in by_client.items()}))
    print(compare("TPOT p50 ms", {name: [r.tpot_ms for r in runs] for name, runs in by_client.items()}))
    one, two = (statistics.median(r.per_core for r in runs) for runs in by_client.values())
    print(f"tokens/s per core of client CPU, medians: loadgen {one:.0f}, vllm bench serve {two:.0f}: {one / two:.1f} x")


if __name__ == "__main__":
    main()
