"""What the live screen draws where no load client is: a watch, or a run whose first attempt has not begun. The engine's
own rates and queue take the places of the client's curves."""

from __future__ import annotations

from screens.live_data import LiveView
from screens.widgets.chart import Plot, Series


def alone(snap: LiveView | None) -> bool:
    """Whether there is nothing but nodes and servers to show."""
    return snap is not None and snap.attempt["attempt_id"] is None


def engine_plots(snap: LiveView) -> tuple[tuple[str, Plot | None], tuple[str, Plot | None]]:
    """(title, plot) for the places of TPOT and of tok/s."""
    return (
        ("engine requests, last minute", _plot(snap, ("running", "one", "running"), ("waiting", "two", "waiting"))),
        ("engine tok/s, last minute", _plot(snap, ("decode", "one", "generation"), ("prefill", "two", "prompt"))),
    )


def _plot(snap: LiveView, *curves: tuple[str, str, str]) -> Plot | None:
    """Series of `live_engine` that have a value a second, the newest at x = 0."""
    if snap.engine is None:
        return None
    made = []
    for name, role, key in curves:
        ys = snap.engine[f"{key}_series"] or []
        made.append(Series(name, role, [float(i + 1 - len(ys)) for i in range(len(ys))], ys))
    longest = max(len(s.xs) for s in made)
    return Plot(tuple(made), float(1 - longest), 0.0, origin_ns=snap.engine["at_ns"]) if longest > 1 else None
