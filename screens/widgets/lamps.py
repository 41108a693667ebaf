"""State as a sign and a word; a colour only underlines it."""

from __future__ import annotations

from screens.widgets.text import Span

# state -> (sign, role). A word always stands beside the sign.
_STATES = {
    "up": ("●", "ok"),
    "ready": ("●", "ok"),
    "running": ("●", "accent"),
    "pass": ("●", "ok"),
    "OK": ("●", "ok"),
    "done": ("●", ""),
    "exited": ("○", "dim"),
    "gone": ("○", "dim"),
    "closed": ("○", "dim"),
    "planned": ("○", "dim"),
    "over": ("○", "dim"),
    "reaped": ("○", "dim"),
    "not_applicable": ("○", "dim"),
    "starting": ("◐", "warn"),
    "stopping": ("◐", "warn"),
    "connecting": ("◐", "warn"),
    "collecting": ("◐", "accent"),
    "void": ("○", "warn"),
    "warn": ("▲", "warn"),
    "unknown": ("?", "warn"),
    "auth_needed": ("▲", "warn"),
    "CANCELLED": ("▲", "warn"),
    "TTFT_SLO_EXCEEDED": ("▲", "warn"),
    "TPOT_SLO_EXCEEDED": ("▲", "warn"),
    "SLO_EXCEEDED": ("▲", "warn"),
    "TPS_REGRESSION": ("▲", "warn"),
    "TPS_SATURATED": ("▲", "warn"),
    "MAX_CONCURRENCY_REACHED": ("▲", "warn"),
    "hostkey": ("✖", "bad"),
    "lost": ("✖", "bad"),
    "fail": ("✖", "bad"),
    "bad": ("✖", "bad"),
    "fatal": ("✖", "bad"),
    "OOM": ("✖", "bad"),
    "ENGINE_CRASH": ("✖", "bad"),
    "NODE_LOST": ("✖", "bad"),
    "START_FAILED": ("✖", "bad"),
    "GATE_FAILED": ("✖", "bad"),
    "CLIENT_ERROR": ("✖", "bad"),
}


def lamp(state: str | None) -> Span:
    """(sign, role) of a state; an unknown state is a question."""
    return _STATES.get(state or "", ("?", "warn"))


def worded(state: str | None) -> Span:
    """(sign and word, role)."""
    sign, role = lamp(state)
    return f"{sign} {(state or 'unknown').replace('_', ' ')}", role
