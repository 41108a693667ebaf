"""Few colours, or none: what matters stays readable."""

from __future__ import annotations

from itertools import combinations

import pytest
from rich.color import Color, ColorSystem
from textual.color import Color as TextualColor
from textual.theme import Theme

from console.theme import THEMES
from screens.widgets.panel import Panel
from tests.screens.conftest import OpenApp, goto
from tests.screens.conftest import open_app as open_app
from tests.screens.conftest import stores as stores


@pytest.mark.parametrize("theme", THEMES, ids=lambda t: t.name)
def test_states_stay_apart_in_256_colours(theme: Theme) -> None:
    colours = [theme.success, theme.warning, theme.error, theme.accent, theme.background]
    numbers = [Color.parse(c or "").downgrade(ColorSystem.EIGHT_BIT).number for c in colours]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("theme", THEMES, ids=lambda t: t.name)
def test_text_stands_out_from_its_background(theme: Theme) -> None:
    background = TextualColor.parse(theme.background or "")
    inks = [theme.foreground, theme.success, theme.warning, theme.error, theme.accent, theme.variables["dim"]]
    for ink in inks:
        assert contrast(TextualColor.parse(ink or ""), background) >= 4.5, ink
    chosen = TextualColor.parse(theme.variables["chosen"])
    assert contrast(TextualColor.parse(theme.foreground or ""), chosen) >= 4.5


def contrast(a: TextualColor, b: TextualColor) -> float:
    """WCAG 2 contrast ratio."""

    def luminance(c: TextualColor) -> float:
        parts = [v / 255 for v in (c.r, c.g, c.b)]
        linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


async def test_without_colour_the_states_are_still_told_apart(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    texts = []
    for name in ("live", "lost", "error"):
        app = open_app(name)
        async with app.run_test(size=(120, 36)) as pilot:
            screen = await goto(pilot, "1")
            texts.append("\n".join(p.plain() for p in screen.query(Panel)))
            assert app.no_color
            for strip in (p.render_line(0) for p in screen.query(Panel) if p.size.height):
                assert strip.text.isprintable()
    assert all(a != b for a, b in combinations(texts, 2))
    assert "✖ lost" in texts[1]
    assert "✖ OOM" in texts[2]
