"""One file per load client: its command and the parser of its results. A new one is a file and a line here."""

from __future__ import annotations

import difflib

from runners.clients.aiperf import Aiperf
from runners.clients.base import Client
from runners.clients.loadgen import Loadgen
from runners.clients.sglang_bench import SglangBench
from runners.clients.vllm_bench import VllmBench
from runners.spec import ConfigError

CLIENTS: dict[str, Client] = {one.name: one for one in (Loadgen(), VllmBench(), SglangBench(), Aiperf())}


def client_of(name: str) -> Client:
    """The client called `name`. Raises ConfigError."""
    if name in CLIENTS:
        return CLIENTS[name]
    near = difflib.get_close_matches(name, CLIENTS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"no load client is called {name!r}.{hint} Known: {', '.join(CLIENTS)}.")
