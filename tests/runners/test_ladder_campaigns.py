"""The ladder against hidden curves with noise. The truth comes from looking at every concurrency of the curve."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import mean

import pytest

from runners.flows.ladder import Point, Repeat, Rules, Verdict, next_step, point_of, settled, verdict

SEEDS = 20


@dataclass(frozen=True)
class Hidden:
    """A server that nobody sees into: it runs `cap` requests at once, thrashes beyond `kv`, dies at `oom`."""

    maximum: int
    cap: int | None
    kv: int | None
    oom: int | None
    base_ms: float
    per_request_ms: float
    prefill_ms: float
    thrash: float
    ttft_limit: float
    tpot_limit: float

    @classmethod
    def drawn(cls, r: random.Random) -> Hidden:
        maximum = r.choice([64, 128, 256])
        return cls(
            maximum,
            r.choice([None, r.randint(20, 200)]),
            r.choice([None, r.randint(20, maximum)]),
            r.choice([None, r.randint(12, maximum)]),
            r.uniform(10, 30),
            r.uniform(0.05, 0.6),
            r.uniform(1, 10),
            r.uniform(0.1, 1.0),
            r.uniform(200, 3000),
            r.uniform(20, 90),
        )

    def running(self, c: int) -> int:
        return min(c, self.cap or c, self.kv or c)

    def over(self, c: int) -> float:
        return self.thrash * min(1.5, (c - self.kv) / self.kv) if self.kv and c > self.kv else 0.0

    def step_ms(self, c: int) -> float:
        return (self.base_ms + self.per_request_ms * self.running(c)) * (1 + self.over(c))

    def tps(self, c: int) -> float:
        return 1000 * self.running(c) / self.step_ms(c)

    def ttft(self, c: int) -> float:
        return 50 + self.prefill_ms * (4 * self.running(c) + 20 * (c - self.running(c)))

    def within(self, c: int) -> bool:
        return self.ttft(c) <= self.ttft_limit and self.step_ms(c) <= self.tpot_limit

    @property
    def last(self) -> int:
        """The largest concurrency that does not kill it."""
        return min(self.maximum, (self.oom or math.inf) - 1)  # type: ignore[return-value]  # maximum is finite


def measured(curve: Hidden, c: int, rules: Rules, r: random.Random, noise: float) -> Point:
    repeats: list[Repeat] = []
    while not settled([x.outcome for x in repeats], True, rules.repeats):
        if c > curve.last:
            repeats.append(Repeat("OOM", "out of memory"))
            continue
        ttft, tpot = (v * math.exp(r.gauss(0, noise / 2)) for v in (curve.ttft(c), curve.step_ms(c)))
        slow = (
            "TTFT_SLO_EXCEEDED" if ttft > curve.ttft_limit else "TPOT_SLO_EXCEEDED" if tpot > curve.tpot_limit else "OK"
        )
        capped = curve.cap if curve.cap and c > curve.cap == curve.running(c) else None
        tps = curve.tps(c) * math.exp(r.gauss(0, noise))
        repeats.append(Repeat(slow, "", tps, waiting=float(c - curve.running(c)), cap=capped))
    return point_of(c, repeats, rules.repeats, has_slo=True)


def searched(curve: Hidden, rules: Rules, r: random.Random, noise: float) -> tuple[list[Point], Verdict]:
    points: list[Point] = []
    while step := next_step(points, rules):
        assert step.concurrency not in {p.concurrency for p in points}
        assert 1 <= step.concurrency <= rules.maximum
        points.append(measured(curve, step.concurrency, rules, r, noise))
    return points, verdict(points, rules)


def reachable(curve: Hidden, points: list[Point], found: Verdict) -> int:
    """The largest concurrency that the search could have answered with: it ends where the climb saw no use in more."""
    if found.stopped == "OOM":
        return curve.last
    return min(curve.last, max(p.concurrency for p in points))


def misses(curve: Hidden, points: list[Point], found: Verdict, refine: int) -> list[str]:
    """Which of the three answers are wrong."""
    top = reachable(curve, points, found)
    slo = max((c for c in range(1, top + 1) if curve.within(c)), default=0)
    best = max(curve.tps(c) for c in range(1, curve.last + 1))
    at = {
        name: answer.concurrency if answer else 0
        for name, answer in (("success", found.max_successful), ("slo", found.max_within_slo), ("tps", found.max_tps))
    }
    out = [] if abs(at["success"] - top) <= refine else ["success"]
    out += [] if abs(at["slo"] - slo) <= refine else ["slo"]
    return out + ([] if curve.tps(at["tps"]) >= 0.97 * best else ["tps"])


def contradictions(points: list[Point], found: Verdict) -> list[str]:
    """What no reader of one result may find."""
    by = {p.concurrency: p for p in points}
    out = []
    s, t, w = found.max_successful, found.max_tps, found.max_within_slo
    good = [p for p in points if p.succeeded]
    if s and any(p.concurrency > s.concurrency for p in good):
        out.append("a larger point succeeded")
    if w and any(p.within_slo and p.concurrency > w.concurrency for p in points):
        out.append("a larger point is within the SLO")
    if any(a and not by[a.concurrency].succeeded for a in (s, t, w)):
        out.append("an answer that failed")
    if w and not by[w.concurrency].within_slo:
        out.append("an SLO answer outside the SLO")
    if bool(good) != (s is not None) or bool(good) != (t is not None):
        out.append("successes without answers")
    if s and any(a and a.concurrency > s.concurrency for a in (t, w)):
        out.append("an answer above the largest success")
    if found.stopped in ("OOM", "ENGINE_CRASH") and s and s.bounded_by != found.stopped:
        out.append("bounded by another failure")
    if t and max(p.tps or 0 for p in good) * (1 - found.tolerance) > (by[t.concurrency].tps or 0):
        out.append("a TPS answer that is not near the peak")
    return out


@pytest.mark.parametrize("noise", [0.002, 0.01])
def test_twenty_servers_with_noise_are_answered_right(noise: float) -> None:
    rules = Rules()
    for seed in range(SEEDS):
        r = random.Random(seed)
        curve = Hidden.drawn(r)
        asked = Rules(maximum=curve.maximum, repeats=rules.repeats)
        points, found = searched(curve, asked, r, noise)
        assert misses(curve, points, found, asked.refine) == [], f"seed {seed}: {curve}"


@pytest.mark.parametrize(("noise", "bar"), [(0.002, 0.015), (0.015, 0.06)])
def test_over_hundreds_of_servers_answers_are_rarely_wrong(noise: float, bar: float) -> None:
    wrong = []
    for seed in range(200):
        r = random.Random(1000 + seed)
        curve = Hidden.drawn(r)
        rules = Rules(maximum=curve.maximum)
        points, found = searched(curve, rules, r, noise)
        wrong.append(bool(misses(curve, points, found, rules.refine)))
        assert contradictions(points, found) == [], f"seed {seed}: {curve}"
    assert mean(wrong) <= bar


def test_a_single_repeat_a_point_still_gives_no_contradiction_and_ends_soon() -> None:
    for seed in range(100):
        r = random.Random(seed)
        curve = Hidden.drawn(r)
        rules = Rules(maximum=curve.maximum, repeats=1)
        points, found = searched(curve, rules, r, 0.03)
        assert contradictions(points, found) == []
        assert len(points) <= len(range(0, curve.maximum, rules.step)) + 16


def test_a_plateau_with_a_queue_is_left_soon_and_with_its_true_reason() -> None:
    stops = []
    for seed in range(60):
        r = random.Random(seed)
        curve = Hidden(256, None, 40, None, 20, 0.3, 5, 0.0, 1e9, 1e9)
        points, found = searched(curve, Rules(), r, 0.01)
        stops.append(found.stopped)
        assert max(p.concurrency for p in points) <= 144
    assert stops.count("TPS_SATURATED") >= 57


def test_noise_alone_is_rarely_taken_for_a_regression() -> None:
    stops = []
    for seed in range(100):
        r = random.Random(seed)
        curve = Hidden(256, None, None, None, 1.0, 1.0, 5, 0.0, 1e9, 1e9)  # flat from 16 on, nothing waits
        stops.append(searched(curve, Rules(), r, 0.02)[1].stopped)
    assert stops.count("TPS_REGRESSION") <= 5
