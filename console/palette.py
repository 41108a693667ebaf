"""The command palette: only what makes sense now, from the screen in front."""

from __future__ import annotations

from collections.abc import Iterable

from textual.command import DiscoveryHit, Hit, Hits, Provider

from screens.base import Command, ConsoleScreen


class ConsoleCommands(Provider):
    """Commands of the screen in front, then places to go, then the app's own."""

    def _commands(self) -> Iterable[Command]:
        from console.app import TwinrailApp

        if isinstance(self.screen, ConsoleScreen):
            yield from self.screen.commands()
        app = self.app
        if isinstance(app, TwinrailApp):
            yield from app.commands()

    async def discover(self) -> Hits:
        for c in self._commands():
            yield DiscoveryHit(c.title, c.run, help=c.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for c in self._commands():
            score = matcher.match(c.title)
            if score > 0:
                yield Hit(score, matcher.highlight(c.title), c.run, help=c.help)
