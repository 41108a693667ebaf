"""Colours: calm ones that stay apart in 256 colours. Each state has a sign or a word too (widgets/lamps.py)."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="twinrail-dark",
    dark=True,
    primary="#5fafd7",
    secondary="#87afaf",
    accent="#5fafd7",
    foreground="#d0d0d0",
    background="#121212",
    surface="#1c1c1c",
    panel="#262626",
    success="#87af5f",
    warning="#d7af5f",
    error="#ff5f5f",
    variables={
        "dim": "#8a8a8a",
        "rule": "#444444",
        "calm": "#5f8787",
        "chosen": "#1c3a4d",
        "two": "#d7af87",
        "three": "#af87d7",
    },
)
LIGHT = Theme(
    name="twinrail-light",
    dark=False,
    primary="#005f87",
    secondary="#5f5f87",
    accent="#005f87",
    foreground="#262626",
    background="#ffffff",
    surface="#eeeeee",
    panel="#e4e4e4",
    success="#00672b",
    warning="#875f00",
    error="#af0000",
    variables={
        "dim": "#6c6c6c",
        "rule": "#bcbcbc",
        "calm": "#5f8787",
        "chosen": "#c6dfee",
        "two": "#87481f",
        "three": "#5f3f9f",
    },
)
CONTRAST = Theme(
    name="twinrail-contrast",
    dark=True,
    primary="#00ffff",
    secondary="#ffffff",
    accent="#00ffff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1c1c1c",
    success="#00ff00",
    warning="#ffff00",
    error="#ff8787",
    variables={
        "dim": "#d0d0d0",
        "rule": "#ffffff",
        "calm": "#afd7d7",
        "chosen": "#004f5f",
        "two": "#ffaf00",
        "three": "#ff87ff",
    },
)
THEMES = (DARK, LIGHT, CONTRAST)
