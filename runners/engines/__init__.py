"""One file per engine: commands per rank, where it answers, what describes it. A new one is a file and a line here."""

from __future__ import annotations

from runners.engines.base import Engine
from runners.engines.external import External
from runners.engines.sglang import Sglang
from runners.engines.sim import Sim
from runners.engines.vllm import Vllm

ENGINES: dict[str, Engine] = {e.name: e for e in (Sglang(), Vllm(), Sim(), External())}
