"""What every flow works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from runners.cluster import Cluster
from runners.ingest import Ingest
from runners.launchers import LAUNCHERS
from runners.nodes.link import NodeError
from runners.spec import Deployment, Inventory, Node
from store.database import Store
from store.masking import mask_text


@dataclass(frozen=True, slots=True)
class Services:
    """The owner's hands: configuration, store, links and the stream of bytes."""

    store: Store
    cluster: Cluster
    ingest: Ingest

    @property
    def inventory(self) -> Inventory:
        """The configuration as it is now."""
        return self.cluster.inventory

    async def ask(self, node: Node, dep: Deployment, *args: str, timeout: float = 40.0) -> dict[str, Any]:
        """Answer of runners/payload/ask.py run on the node: always a dict with `ok`, and `detail` when it is not.

        Raises:
            NodeError: the node cannot be reached; kind "missing" when it has no such interpreter.
        """
        script = await self.cluster.push(node.name, "ask.py")
        root = await self.cluster.root(node.name)
        as_client = args[:1] == ("client",)
        command = LAUNCHERS[dep.launcher].ask(dep, node, root, [script, *args], as_client=as_client)
        link = await self.cluster.link(node.name)
        done = await link.run(command, timeout=timeout)
        if done.exit_code in (126, 127):
            raise NodeError(
                "missing",
                f"{node.name}: cannot run {dep.python or node.python!r}. Set python = in [[nodes]] or in the "
                "deployment to an interpreter with aiohttp.",
            )
        try:
            answer = orjson.loads(done.stdout)
        except orjson.JSONDecodeError:
            said = (done.stderr or done.stdout)[-300:].decode(errors="replace").strip()
            return {"ok": False, "detail": mask_text(f"exit {done.exit_code}: {said}")}
        if not isinstance(answer, dict):
            return {"ok": False, "detail": "not an answer of ask.py"}
        return {**answer, "detail": mask_text(str(answer["detail"]))} if "detail" in answer else answer
