"""What a load client must be able to say: the command of one attempt, and the readers of what that command writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from runners.probes.base import Reader
from runners.spec import Case, ClientTool, Deployment
from store.database import Store
from store.records import Attempt

DOCUMENT: Final = "document"  # read in one piece once the job has ended
LINES: Final = "lines"  # read line by line while it grows


class AskError(ValueError):
    """This client cannot be asked for this case; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One attempt as a client is told it.

    Attributes:
        url: of the server, as seen from the client's node.
        model: as the server calls it.
        seed: of the prompts; another one for each attempt, so that no prompt comes twice.
        folder: of the job, absolute; where a tool writes its files.
        input: path of a file that the client may have laid on the node beforehand.
        tool: what the configuration says of this client.
        payloads: absolute paths, on the node, of the scripts that the client names in `payloads`.
    """

    case: Case
    url: str
    model: str
    dep: Deployment
    seed: int
    folder: str
    input: str = ""
    tool: ClientTool = field(default_factory=ClientTool)
    payloads: Mapping[str, str] = field(default_factory=dict)

    @property
    def tokenizer(self) -> str:
        """Folder or name of the tokenizer that a tool makes its prompts with."""
        return self.tool.tokenizer or self.dep.model

    @property
    def requests(self) -> int:
        """Measured requests for tools that must be told a number: DESIGN's default of max(5 C, 20), and a minute of
        an open loop."""
        case = self.case
        if case.requests is not None:
            return case.requests
        if case.request_rate is not None:
            return max(20, round(case.request_rate * min(60.0, case.budget / 2)))
        return max(5 * case.concurrency, 20)

    @property
    def warmup(self) -> int:
        """Requests before the measured ones."""
        return min(self.case.concurrency, 4) if self.case.warmup is None else self.case.warmup


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCommand:
    """How to start a client for one attempt.

    Attributes:
        argv: without its interpreter.
        env: on top of the node's.
        files: streams that the job writes in its folder besides stdout and stderr: name -> DOCUMENT or LINES.
        put: files to lay on the node first, mode 0600: absolute path -> content.
        known: what the readers of this job need to know; goes to the store, so no secrets.
    """

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    put: dict[str, bytes] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Module:
    """The Python tool behind a client, for the look at what the node has before the first attempt.

    Attributes:
        package: distribution whose version names the tool.
        help: arguments of the interpreter that print the tool's options, all of them.
        tried: versions that this adapter was tried with; another one is flagged, not refused.
    """

    package: str
    help: tuple[str, ...]
    tried: tuple[str, ...]


class Client(Protocol):
    """One load client. Stateless."""

    name: str
    payloads: tuple[str, ...]  # scripts of runners/payload that have to lie on the node
    module: Module | None  # None: a script of ours, nothing to look for

    def command(self, ask: Ask) -> ClientCommand:
        """How to start it. Raises AskError."""

    def planned(self, ask: Ask) -> tuple[list[str], str]:
        """For a dry run: argv without its interpreter, and what comes on stdin (mostly nothing). Raises AskError."""

    def reader(self, stream: str, known: Mapping[str, Any]) -> Reader | None:
        """Reader of a stream of the job; None: it is a log. `known` as in ClientCommand."""

    def flags_of(self, store: Store, attempt: Attempt) -> list[str]:
        """Marks that the rows of an attempt put on its result."""

    def refusal_of(self, store: Store, attempt: Attempt) -> str | None:
        """Why the result of a client that ended with exit code 0 is not believed; None when it is. Whether enough
        requests succeeded is judged elsewhere."""
