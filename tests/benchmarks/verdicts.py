"""How often is a verdict wrong? Pairs of servers with a known truth, measured as `ab --run` would, judged by us.

    python tests/benchmarks/verdicts.py --pairs 2000 --blocks 6 --cv 3 --seed 1

A block is one measurement of A and one of B, each on a server life of its own, in the order A B, B A, A B ... Worlds:
none (no difference), 2, 5, 10 % (B faster), tail (only one request in 40 of B is 3x slower: TPS equal, P99 worse),
drift (the machine loses 1 % a measurement, no difference), bimodal (each life is fast or 8 % slow by chance), lives
(life-to-life variance twice that of a measurement), few (3 blocks of 10 %).
Printed: shares of each verdict, with the rate that the issue bounds: false improve/regress at most 5 %, 10 % found in
at least 80 %.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable

import numpy as np

from store.analysis.effect import Effect, judged, paired_effect, separate_effect

Rng = np.random.Generator
Pairs = list[tuple[float, float]]


def blocks(
    rng: Rng, n: int, cv: float, gain: float, *, drift: float = 0.0, life: Callable[[Rng], float] | None = None
) -> Pairs:
    out, at = [], 0
    for block in range(n):
        seen = {}
        for side in ("ab", "ba")[block % 2]:
            level = 1000.0 * (1 + gain if side == "b" else 1.0) * (1 - drift) ** at
            level *= life(rng) if life else 1.0
            seen[side] = level * float(np.exp(rng.normal(0, cv)))
            at += 1
        out.append((seen["a"], seen["b"]))
    return out


def tails(rng: Rng, n: int, cv: float) -> tuple[Pairs, Pairs]:
    """(TPS pairs, P99 pairs) of attempts with 400 requests each."""

    def p99(slow: float) -> float:
        times = 40.0 * np.exp(rng.normal(0, 0.15, 400)) * float(np.exp(rng.normal(0, cv)))
        times[rng.random(400) < slow] *= 3
        return float(np.quantile(times, 0.99))

    return blocks(rng, n, cv, 0.0), [(p99(0.0), p99(1 / 40)) for _ in range(n)]


def bimodal(rng: Rng) -> float:
    return 0.92 if rng.random() < 0.5 else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--cv", type=float, default=3.0, help="of one measurement, in percent")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng, n, cv = np.random.default_rng(asked.seed), asked.blocks, asked.cv / 100

    def lives(r: Rng) -> float:
        return float(np.exp(r.normal(0, 2 * cv)))

    worlds: dict[str, Callable[[], tuple[str, str]]] = {
        "none": lambda: judged(paired_effect(blocks(rng, n, cv, 0.0)), higher_is_better=True),
        "2 %": lambda: judged(paired_effect(blocks(rng, n, cv, 0.02)), higher_is_better=True),
        "5 %": lambda: judged(paired_effect(blocks(rng, n, cv, 0.05)), higher_is_better=True),
        "10 %": lambda: judged(paired_effect(blocks(rng, n, cv, 0.10)), higher_is_better=True),
        "tail, TPS": lambda: judged(paired_effect(tails(rng, n, cv)[0]), higher_is_better=True),
        "tail, P99": lambda: judged(paired_effect(tails(rng, n, cv)[1]), higher_is_better=False),
        "drift": lambda: judged(paired_effect(blocks(rng, n, cv, 0.0, drift=0.01)), higher_is_better=True),
        "bimodal": lambda: judged(paired_effect(blocks(rng, n, cv, 0.0, life=bimodal)), higher_is_better=True),
        "lives": lambda: judged(paired_effect(blocks(rng, n, cv, 0.0, life=lives)), higher_is_better=True),
        "lives, 10 %": lambda: judged(paired_effect(blocks(rng, n, cv, 0.1, life=lives)), higher_is_better=True),
        "few, 10 %": lambda: judged(paired_effect(blocks(rng, 3, cv, 0.10)), higher_is_better=True),
        "few, noise told": lambda: judged(paired_effect(blocks(rng, 3, cv, 0.10), noise=cv), higher_is_better=True),
        "apart, none": lambda: judged(_apart(rng, n, cv, 0.0), higher_is_better=True),
        "apart, 10 %": lambda: judged(_apart(rng, n, cv, 0.10), higher_is_better=True),
    }
    print(f"{asked.pairs} pairs each, {n} blocks, CV {asked.cv:g} %, seed {asked.seed}")
    names = ("improve", "regress", "no_change", "not_enough_data")
    print(f"{'world':<16}" + "".join(f"{v:>17}" for v in names))
    for world, measure in worlds.items():
        seen = Counter(measure()[0] for _ in range(asked.pairs))
        print(f"{world:<16}" + "".join(f"{seen[v] / asked.pairs:>16.1%} " for v in names))


def _apart(rng: Rng, n: int, cv: float, gain: float) -> Effect:
    pairs = blocks(rng, n, cv, gain)
    return separate_effect([a for a, _ in pairs], [b for _, b in pairs])


if __name__ == "__main__":
    main()
