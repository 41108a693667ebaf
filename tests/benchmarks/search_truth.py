"""Is a search right? Servers with hidden costs, each searched, and then measured at every single concurrency.

    python tests/benchmarks/search_truth.py --seeds 20 --max 64 --folder /var/tmp/truth

The server is the simulated engine on this machine with drawn costs, limits and faults. The truth is an exhaustive run
of the same server at each concurrency. This script knows nothing of how a search decides: it reads `search --json` and
`run --json`, and prints a line a seed: whether the largest success and the largest load within the SLO lie within one
refinement step of the truth, and how far TPS at the TPS answer lies below the true maximum (bar: 3 %). Exit code 1 when
an answer is wrong. Needs a machine that is otherwise idle; about 5 minutes a seed at --max 64.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TWINRAIL = str(Path(sys.executable).with_name("twinrail"))
REFINE = 4
BAR = 0.03
SUCCESS = ("OK", "TTFT_SLO_EXCEEDED", "TPOT_SLO_EXCEEDED", "SLO_EXCEEDED")
USELESS = ("TPS_SATURATED", "TPS_REGRESSION", "MAX_CONCURRENCY_REACHED")  # the climb ended though more would succeed


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def drawn(seed: int, top: int, scale: float) -> tuple[list[str], dict[str, float], int | None]:
    """Flags of a server, the SLO's limits in wall ms, and the concurrency at which it runs out of memory."""
    r = random.Random(seed)
    base, per = r.uniform(15, 40), r.uniform(0.2, 1.5)
    oom = r.choice([None, r.randint(6, top)])
    flags = ["--seed", str(seed), "--clock-scale", f"{scale:g}", "--load-s", "2", "--noise", "0.02"]
    flags += ["--step-base-ms", f"{base:.2f}", "--ms-per-seq", f"{per:.3f}"]
    if r.random() < 0.4:
        flags += ["--max-running", str(r.randint(8, top))]
    if r.random() < 0.4:
        flags += ["--kv-tokens", str(r.randint(10, top) * 192)]
    if oom is not None:
        flags += ["--fault", f"oom@C={oom}"]
    knee = r.randint(4, top)
    limits = {"tpot": (base + per * knee) * 1.15 / scale, "ttft": r.uniform(150, 1500) / scale}
    return flags, limits, oom


def config(folder: Path, flags: list[str], limits: dict[str, float], loads: list[int]) -> Path:
    path = folder / "twinrail.toml"
    q = json.dumps
    path.write_text(
        f'[[nodes]]\nname = "n1"\nhost = "local"\npython = {q(sys.executable)}\nroot = {q(str(folder / "node"))}\n'
        f'devices = {{ vendor = "none", count = 0 }}\n'
        f"env = {{ TWINRAIL_LOCK_ROOT = {q(str(folder / 'lock'))} }}\n"
        f'[deployments.sim]\nengine = "sim"\nmodel = "sim-model"\nnodes = ["n1"]\nhost = "127.0.0.1"\n'
        f'port = {free_port()}\nflags = {q(flags)}\nready_timeout = "2m"\nstop_timeout = "10s"\n'
        f"[slo.asked]\nttft_ms = {{ p95 = {limits['ttft']:.1f} }}\ntpot_ms = {{ p95 = {limits['tpot']:.2f} }}\n"
        f'[cases.X]\nisl = 128\nosl = 64\nslo = "asked"\nbudget = "120s"\n'
        f'[cases.T]\nisl = 128\nosl = 64\nslo = "asked"\nbudget = "120s"\nconcurrency = {q(loads)}\n'
    )
    return path


def asked(path: Path, *words: str) -> dict[str, Any]:
    """The JSON document of a verb. Raises RuntimeError with its last words when there is none."""
    argv = [TWINRAIL, *words, "--config", str(path), "--foreground", "--json"]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr[-500:].decode(errors='replace')}")
    return dict(json.loads(done.stdout))


def truth_of(document: dict[str, Any]) -> dict[int, tuple[str, float | None]]:
    """Concurrency -> outcome and TPS of the exhaustive run."""
    return {c["concurrency"]: (c["attempts"][0]["outcome"], c["attempts"][0]["output_tps"]) for c in document["cases"]}


def judged(found: dict[str, Any], truth: dict[int, tuple[str, float | None]], oom: int | None) -> list[str]:
    """What is wrong with a search's result; empty when nothing is."""
    at = {name: (a["concurrency"] if a else 0) for name, a in found["answers"].items()}
    tried = max(p["concurrency"] for p in found["points"])
    top = tried if found["stopped"] in USELESS else max(truth)
    good = [c for c, (outcome, _) in truth.items() if outcome in SUCCESS and c <= top]
    inside = [c for c, (outcome, _) in truth.items() if outcome == "OK" and c <= top]
    wrong = []
    if abs(at["max_successful"] - max(good, default=0)) > REFINE:
        wrong.append(f"largest success {at['max_successful']}, truth {max(good, default=0)}")
    if abs(at["max_within_slo"] - max(inside, default=0)) > REFINE:
        wrong.append(f"largest within SLO {at['max_within_slo']}, truth {max(inside, default=0)}")
    best = max((tps or 0.0 for outcome, tps in truth.values() if outcome in SUCCESS), default=0.0)
    mine = truth.get(at["max_tps"], ("", None))[1] or 0.0
    if best and mine < (1 - BAR) * best:
        wrong.append(f"TPS at {at['max_tps']} is {1 - mine / best:.1%} below the true maximum")
    if at["max_within_slo"] > at["max_successful"] or at["max_tps"] > at["max_successful"]:
        wrong.append(f"answers contradict each other: {at}")
    bad = [p for p in found["points"] if p["outcome"] not in SUCCESS]
    wrong += [f"{p['concurrency']} is typed {p['outcome']}" for p in bad if p["outcome"] != "OOM" or oom is None]
    return wrong


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--seeds", type=int, default=20)
    cli.add_argument("--first", type=int, default=0, help="number of the first seed")
    cli.add_argument("--max", type=int, default=64, help="highest concurrency")
    cli.add_argument("--every", type=int, default=1, help="distance of the exhaustive run's concurrencies")
    cli.add_argument("--repeats", type=int, default=3)
    cli.add_argument("--clock-scale", type=float, default=4.0)
    cli.add_argument("--folder", type=Path, required=True)
    args = cli.parse_args()
    failures = 0
    for seed in range(args.first, args.first + args.seeds):
        folder = args.folder / f"seed{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        flags, limits, oom = drawn(seed, args.max, args.clock_scale)
        last = min(args.max, oom + 1) if oom else args.max  # every further one dies the same way
        loads = {1, *range(args.every, last + 1, args.every), last}
        path = config(folder, flags, limits, sorted(loads))
        begun = time.monotonic()
        found = asked(path, "search", "X", "--max", str(args.max), "--repeats", str(args.repeats))
        took = time.monotonic() - begun
        (folder / "search.json").write_text(json.dumps(found, indent=1))
        loads |= {a["concurrency"] for a in found["answers"].values() if a}
        path = config(folder, flags, limits, sorted(loads))
        truth = truth_of(asked(path, "run", "T"))
        wrong = judged(found, truth, oom)
        failures += bool(wrong)
        at = {name: (a["concurrency"] if a else None) for name, a in found["answers"].items()}
        print(f"seed {seed}: {found['stopped']}, {at}, {len(found['points'])} points in {took:.0f} s: ", end="")
        print("; ".join(wrong) or "right", flush=True)
    print(f"{args.seeds - failures} of {args.seeds} right")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
