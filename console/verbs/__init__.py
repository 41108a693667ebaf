"""One file per group of verbs; here is what they share: where to work, how to print, how to fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from runners.session import Session
    from runners.spec import Inventory

DONE, NEGATIVE, USAGE, INFRASTRUCTURE = 0, 1, 2, 3
_HIGH_CONTROLS = re.compile(r"[\x7f-\x9f]")  # JSON may hold them bare, a terminal obeys them


@dataclass(frozen=True, slots=True)
class Place:
    """Which configuration a verb works with."""

    config: Path | None = None
    demo: bool = False
    scenario: str | None = None  # of the embedded lab; None takes the lab as it runs

    def inventory(self) -> Inventory:
        """The configuration; with `demo` that of the embedded lab, started if need be. Raises ConfigError, LabError."""
        from runners.spec import ConfigError, load_inventory

        if self.demo:
            if self.config is not None:
                raise ConfigError("--demo brings its own configuration; leave out --config")
            from runners.lab.control import find, start

            folder = demo_folder()
            if self.scenario is not None or find(folder) is None:
                start(folder, self.scenario or "healthy")
            return load_inventory(folder / "twinrail.toml")
        return load_inventory(self.config or default_config())


def default_config() -> Path:
    """./twinrail.toml if it is there, else the one in the user's config folder."""
    here = Path("twinrail.toml")
    if here.exists():
        return here
    from platformdirs import user_config_path

    mine = user_config_path("twinrail") / "twinrail.toml"
    return mine if mine.exists() else here


def demo_folder() -> Path:
    """Where the embedded lab lives: $TWINRAIL_DEMO_DIR, else the user's state folder."""
    if chosen := os.environ.get("TWINRAIL_DEMO_DIR"):
        return Path(chosen)
    from platformdirs import user_state_path

    return user_state_path("twinrail") / "demo"


def say(text: str) -> None:
    """Progress and explanations: to stderr, so that stdout holds nothing but the answer."""
    _write(sys.stderr, _harmless(text))


def out(text: str) -> None:
    """The answer, to stdout."""
    _write(sys.stdout, _harmless(text))


def out_json(document: dict[str, Any]) -> None:
    """One JSON document with its schema number; NaN and infinities are null. Controls are escaped, C1 and DEL too."""
    import orjson

    text = orjson.dumps({"schema": 1, **document}, option=orjson.OPT_INDENT_2).decode()
    _write(sys.stdout, _HIGH_CONTROLS.sub(lambda m: f"\\u{ord(m[0]):04x}", text))


def _harmless(text: str) -> str:
    """Lines as they are, but nothing in them that a terminal would obey: much of it was written by nodes."""
    from store.text import plain

    return "\n".join(plain(line) for line in text.split("\n"))


def _write(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()


def plain_error(error: BaseException) -> str:
    """One line that says what, where and what to do next, secrets masked."""
    from store.masking import mask_text

    return mask_text(str(error) or type(error).__name__).replace("\n", " ")


def say_error(error: BaseException) -> None:
    """The error's line, to stderr."""
    say("twinrail: " + plain_error(error))


def fail_code(error: BaseException) -> int | None:
    """Exit code for an error that is nobody's bug; None for one that is ours."""
    from runners.lab.control import LabError
    from runners.nodes.link import NodeError
    from runners.spec import ConfigError
    from store.errors import StoreError

    if isinstance(error, ConfigError):
        return USAGE
    if isinstance(error, (StoreError, NodeError, LabError, OSError)):
        return INFRASTRUCTURE
    return None


def run_async(work: Coroutine[Any, Any, int]) -> int:
    """Run a verb's coroutine; its exit code."""
    return asyncio.run(work)


@contextlib.asynccontextmanager
async def session_of(inventory: Inventory, *, foreground: bool) -> AsyncIterator[Session]:
    """A session that can order: attached to an owner (started if none lives), or the owner in this process."""
    from runners import session

    made = session.foreground(inventory) if foreground else session.attached(inventory, start=True)
    async with made as s:
        yield s


def number(value: Any, form: str = ".1f", missing: str = "–") -> str:
    """A figure for a table; a missing one is shown as missing, never as zero."""
    return missing if value is None else format(value, form)


def print_table(columns: list[str], rows: list[list[str]], write: Callable[[str], None] = out) -> None:
    """A plain text table: left-aligned names, right-aligned figures, control characters neutralised."""
    from store.text import plain

    cells = [[plain(c) for c in row] for row in rows]
    widths = [max([len(c), *(len(r[i]) for r in cells)]) for i, c in enumerate(columns)]
    numeric = [bool(cells) and all(r[i][:1].isdigit() or r[i] in ("–", "") for r in cells) for i in range(len(columns))]
    for row in [columns, *cells]:
        parts = [c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True)]
        write("  ".join(parts).rstrip())
