"""What an operator asks for: nodes, deployments, cases, plans, searches (twinrail.toml, checked by pydantic).

Unknown keys are errors that name the nearest known key. Durations are text ("15m", "40s", "1h30m") or seconds.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
T = TypeVar("T")
Name = Annotated[str, Field(pattern=NAME)]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(value: object) -> float:
    """Seconds from "15m", "1h30m", "250ms" or a plain number.

    Raises:
        ValueError: the text is not a duration.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    text = str(value).strip()
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise ValueError(f"{text!r} is not a duration; write for example 40s, 15m or 1h30m")
    return sum(float(n) * _UNITS[u] for n, u in parts)


Duration = Annotated[float, BeforeValidator(seconds), Field(gt=0)]


class Spec(BaseModel):
    """Base of everything that an operator writes: strict about keys, immutable afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Rail(Spec):
    """One physical compute-network port: its netdev (IP) and its HCA (RDMA verbs) are two doors to the same wire."""

    netdev: str
    hca: str
    switch: str | None = None
    gbps: float | None = None
    address: str | None = None


class Devices(Spec):
    vendor: Literal["nvidia", "hygon", "amd", "none"] = "nvidia"
    count: int = Field(default=8, ge=0, le=128)


class Node(Spec):
    """A machine reached over SSH, or `host = "local"`."""

    name: Name
    host: str
    user: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    key: str | None = None
    jump: str | None = None
    proxy_command: str | None = None
    known_hosts: str | None = None
    ssh_config: str | None = None
    become: str | None = None
    python: str = "python3"
    container: Literal["docker", "podman", "nerdctl"] = "docker"
    root: str = ".twinrail"  # folder of the jobs on the node; relative to the user's home
    address: str | None = None  # how the other nodes reach this one; default: the first rail's address, else the host
    rails: list[Rail] = Field(default_factory=list)
    devices: Devices = Field(default_factory=Devices)
    env: dict[str, str] = Field(default_factory=dict)


class Topology(Spec):
    """Parallel sizes of the one server, over all its nodes."""

    tp: int = Field(default=1, ge=1)
    pp: int = Field(default=1, ge=1)
    dp: int = Field(default=1, ge=1)
    ep: int = Field(default=1, ge=1)
    dp_attention: bool = False

    @property
    def ranks(self) -> int:
        """Processes with a GPU. With DP-attention the DP groups share the TP ranks."""
        return self.tp * self.pp * (1 if self.dp_attention else self.dp)


class Deployment(Spec):
    """Model + engine + image + flags + env + topology over nodes; `external` is a server that somebody else started."""

    name: str = ""
    base: str | None = None
    engine: Literal["sglang", "vllm", "sim", "external"]
    launcher: Literal["docker", "process"] = "process"  # docker: by the command that the node calls `container`
    image: str | None = None  # the next four: docker only
    mounts: list[str] = Field(default_factory=list)  # "/on/node:/in/container[:ro]", besides the model folder
    shm_size: str | None = None  # e.g. "32g"; without it the containers share the node's IPC namespace
    container_flags: list[str] = Field(default_factory=list)  # further options of `run`, e.g. "--cap-add=SYS_NICE"
    model: str = "sim"
    served_model: str | None = None
    nodes: list[str] = Field(default_factory=list)
    topology: Topology = Field(default_factory=Topology)
    distributed: Literal["native", "ray"] = "native"  # how vLLM's nodes find each other
    host: str | None = None  # address that the server binds; the engine's default otherwise
    port: int = Field(default=30000, ge=1, le=65535)
    url: str | None = None  # external only
    # Interpreter that starts the engine and the load client; default: the node's. With launcher = docker the engine has
    # the image's own; this one, on the node, is the load client's, which without it runs in a container too.
    python: str | None = None
    command: list[str] | None = None  # replaces the engine's own program, e.g. a wrapper script
    flags: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    ready_timeout: Duration = 2400.0
    stop_timeout: Duration = 60.0
    hang_timeout: Duration = 120.0  # no token for so long with requests in flight is a hang
    cpus: str | None = None  # CPU list of the server, e.g. "0-31"
    client_cpus: str | None = None  # CPU list of the load client, kept off the server's
    vocab: tuple[int, int] = (1000, 30000)  # ordinary token ids for prompts, [low, high)

    @model_validator(mode="after")
    def _external_has_url(self) -> Self:
        if self.engine == "external" and not self.url:
            raise ValueError('engine = "external" needs url = "http://HOST:PORT"')
        if self.engine != "external" and self.url:
            raise ValueError("url is only for engine = external; a server of ours is reached by node and port")
        return self

    @model_validator(mode="after")
    def _container_has_image(self) -> Self:
        if self.launcher == "docker" and self.engine != "external" and not self.image:
            raise ValueError('launcher = "docker" needs image = "NAME:TAG" (`docker images` on the node lists them)')
        for mount in self.mounts:
            if not re.fullmatch(r"[^:\0]+:/[^:\0]*(:[a-zA-Z,]+)?", mount):
                raise ValueError(f"mounts: {mount!r} is not /on/node:/in/container or /on/node:/in/container:ro")
        return self


class Bound(Spec):
    """Upper limits of one metric by statistic, in the unit of the metric's name."""

    mean: float | None = Field(default=None, gt=0)
    p50: float | None = Field(default=None, gt=0)
    p95: float | None = Field(default=None, gt=0)
    p99: float | None = Field(default=None, gt=0)


class ClientTool(Spec):
    """[clients.NAME]: where a load client other than loadgen is found, and what it is told beyond the case."""

    python: str | None = None  # interpreter on the node that has the tool; default: as the deployment's
    image: str | None = None  # with launcher = docker: the tool's own image instead of the engine's
    tokenizer: str | None = None  # folder or name; default: the deployment's model
    flags: list[str] = Field(default_factory=list)  # further flags of the tool, word by word
    env: dict[str, str] = Field(default_factory=dict)


class Slo(Spec):
    ttft_ms: Bound = Field(default_factory=Bound)
    tpot_ms: Bound = Field(default_factory=Bound)
    itl_ms: Bound = Field(default_factory=Bound)
    e2e_ms: Bound = Field(default_factory=Bound)
    success: float = Field(default=0.99, ge=0, le=1)


class Inject(Spec):
    """Long prefills injected into a steady background (M1)."""

    isl: int = Field(gt=0)
    osl: int = Field(default=1, gt=0)
    every: Duration = 60.0
    count: int = Field(default=5, gt=0)


class Case(Spec):
    """A workload point. In the file `concurrency` may be a list, which expands to one case a value."""

    name: str = ""
    isl: int = Field(gt=0)
    osl: int = Field(gt=0)
    concurrency: int = Field(default=1, ge=1, le=65536)
    request_rate: float | None = Field(default=None, gt=0)
    requests: int | None = Field(default=None, gt=0)
    warmup: int | None = Field(default=None, ge=0)
    prefix_share: float = Field(default=0.0, ge=0, lt=1)
    slo: str | None = None
    client: Name = "loadgen"  # a name of runners.clients.CLIENTS
    api: Literal["completions", "chat"] = "completions"
    prompt: Literal["ids", "text"] = "ids"
    budget: Duration = 900.0
    deadline: Duration = 600.0
    seed: int | None = None
    filler: bool = True
    ignore_eos: bool = True
    lives: Literal["shared", "per_repeat"] = "shared"
    inject: Inject | None = None
    fallback_isl: int | None = Field(default=None, gt=0)  # when the server's context is too short for `isl`

    @property
    def label(self) -> str:
        """Case name with its load: `D2-C16`, `P4-R2.5`; a name that already says it stays."""
        tail = f"R{self.request_rate:g}" if self.request_rate else f"C{self.concurrency}"
        return self.name if self.name.endswith(f"-{tail}") else f"{self.name}-{tail}"


class Plan(Spec):
    name: str = ""
    deployment: str | None = None  # default: the only one there is
    cases: list[str] = Field(min_length=1)
    repeats: int = Field(default=3, ge=1, le=1000)
    # A case whose repeats spread by more than 3 % is measured again up to this often; default: twice `repeats`.
    max_repeats: int | None = Field(default=None, ge=1, le=1000)
    order: Literal["interleaved", "blocked"] = "interleaved"
    lives: Literal["shared", "per_repeat"] | None = None  # default: as each case says
    scale: float = Field(default=1.0, gt=0, le=1)  # of every length in tokens, for servers that are small
    cool_down: Duration | None = None  # rest between two attempts
    budget: Duration | None = None  # of the whole run: no attempt begins after it


class Sweep(Spec):
    """One variable, several values, everything else the same. `vary`: see runners/flows/variants.py."""

    name: str = ""
    deployment: str | None = None
    cases: list[str] = Field(min_length=1)
    vary: str
    values: list[bool | int | float | str] = Field(min_length=2)
    repeats: int = Field(default=3, ge=1, le=1000)
    max_repeats: int | None = Field(default=None, ge=1, le=1000)
    order: Literal["interleaved", "blocked"] = "blocked"  # interleaved: a restart of the server for each attempt
    cool_down: Duration | None = None
    budget: Duration | None = None


class Search(Spec):
    name: str = ""
    case: str
    step: int = Field(default=16, ge=1)
    refine: int = Field(default=4, ge=1)
    max_concurrency: int = Field(default=256, ge=1)
    repeats: int = Field(default=3, ge=1)
    stop_at_slo: bool = False
    stop_at_preemption: bool = False  # the KV pressure ladder: up to the first request that is put back
    max_rate: float | None = Field(default=None, gt=0)  # requests/s: the search climbs over rates instead
    step_rate: float = Field(default=1.0, gt=0)
    refine_rate: float = Field(default=0.25, gt=0)

    @model_validator(mode="after")
    def _whole_rates(self) -> Self:
        for name, rate in (("step_rate", self.step_rate), ("max_rate", self.max_rate)):
            steps = (rate or 0) / self.refine_rate
            if self.max_rate is not None and (steps < 1 - 1e-9 or abs(steps - round(steps)) > 1e-6):
                raise ValueError(f"{name} = {rate:g} is not a whole multiple of refine_rate = {self.refine_rate:g}")
        return self


class Project(Spec):
    name: str = "twinrail"
    results: str = "results"
    store: str = "twinrail.duckdb"
    port: int | None = None  # loopback port of the owner's Quack server; default: any free one
    notify: str | None = None  # a command that hears of a run's end: see runners/notify.py for its environment


K = 1024
BUILT_IN_CASES: dict[str, dict[str, Any]] = {
    "P1": {"isl": K, "osl": 1},
    "P2": {"isl": 32 * K, "osl": 1},
    "P3": {"isl": 128 * K, "osl": 1, "fallback_isl": 64 * K},
    "P4": {"isl": 32 * K, "osl": 1, "concurrency": [2, 4, 8]},
    "D1": {"isl": K, "osl": K},
    "D2": {"isl": K, "osl": K, "concurrency": [16, 32, 64]},
    "M1": {
        "isl": K,
        "osl": K,
        "concurrency": 32,
        "inject": {"isl": 128 * K, "osl": 1, "every": "60s", "count": 5},
    },
}

# The first round: what everything later is judged by.
BUILT_IN_PLANS: dict[str, dict[str, Any]] = {"first-round": {"cases": ["P1", "P2", "P3", "D1", "D2", "M1"]}}


class ConfigError(Exception):
    """The configuration cannot be used. The text says what, where and what to do next."""


class Inventory(Spec):
    """The whole configuration, resolved: bases applied, lists expanded, references checked."""

    project: Project = Field(default_factory=Project)
    nodes: list[Node] = Field(default_factory=list)
    deployments: dict[Name, Deployment] = Field(default_factory=dict)
    slo: dict[Name, Slo] = Field(default_factory=dict)
    cases: dict[Name, list[Case]] = Field(default_factory=dict)
    clients: dict[Name, ClientTool] = Field(default_factory=dict)
    plans: dict[Name, Plan] = Field(default_factory=dict)
    searches: dict[Name, Search] = Field(default_factory=dict)
    sweeps: dict[Name, Sweep] = Field(default_factory=dict)
    path: Path | None = None

    def node(self, name: str) -> Node:
        """The node called `name`. Raises ConfigError."""
        return _find({n.name: n for n in self.nodes}, name, "node")

    def deployment(self, name: str | None) -> Deployment:
        """The deployment called `name`; without a name, the only one there is. Raises ConfigError."""
        if name is None:
            if len(self.deployments) != 1:
                known = ", ".join(self.deployments) or "none"
                raise ConfigError(f"which deployment? The configuration has: {known}. Name one with --deployment.")
            return next(iter(self.deployments.values()))
        return _find(self.deployments, name, "deployment")

    def case(self, name: str) -> list[Case]:
        """The cases that `name` stands for: D2 is every concurrency of D2, D2-C16 is one. Raises ConfigError."""
        flat = {c.label: [c] for c in itertools.chain.from_iterable(self.cases.values())}
        return _find({**flat, **self.cases}, name, "case")

    def nodes_of(self, deployment: Deployment) -> list[Node]:
        """Nodes in rank order. An external deployment without nodes uses the first node for its client."""
        names = deployment.nodes or [n.name for n in self.nodes[:1]]
        return [self.node(n) for n in names]

    @property
    def home(self) -> Path:
        """The folder that relative paths of the file start from."""
        return self.path.parent if self.path else Path.cwd()

    @property
    def store_path(self) -> Path:
        return self.home / self.project.store

    @property
    def results_path(self) -> Path:
        return self.home / self.project.results

    @model_validator(mode="after")
    def _references(self) -> Self:
        names = [n.name for n in self.nodes]
        for twice in {n for n in names if names.count(n) > 1}:
            raise ValueError(f"two nodes are called {twice!r}")
        for d in self.deployments.values():
            for n in d.nodes:
                if n not in names:
                    raise ValueError(f"deployment {d.name!r} names node {n!r}, which is not in [[nodes]]")
            if d.nodes and d.engine == "sim" and d.topology.ranks % len(d.nodes):
                spread = f"{d.topology.ranks} ranks do not spread evenly over {len(d.nodes)} nodes"
                raise ValueError(f"deployment {d.name!r}: {spread}; set topology = {{ tp = ... }}")
            if d.engine != "external" and not d.nodes:
                raise ValueError(f"deployment {d.name!r} needs nodes = [...]")
        for case in itertools.chain.from_iterable(self.cases.values()):
            if case.slo is not None and case.slo not in self.slo:
                raise ValueError(f"case {case.name!r} names slo {case.slo!r}, which is not in [slo]")
        return self


def _find(table: dict[str, T], name: str, what: str) -> T:
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"no {what} is called {name!r}.{hint} Known: {', '.join(table) or 'none'}.")


def parse_inventory(text: str, path: Path | None = None) -> Inventory:
    """Inventory from the text of a twinrail.toml.

    Raises:
        ConfigError: not TOML, an unknown key, a value out of range, or a reference to nothing.
    """
    where = str(path) if path else "the configuration"
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"{where} is not valid TOML: {e}") from e
    try:
        return Inventory.model_validate({**_resolve(raw), "path": path})
    except ValidationError as e:
        raise ConfigError(f"{where}: {_explain(e)}") from e


def load_inventory(path: Path) -> Inventory:
    """Inventory from a file. Raises ConfigError, also when the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as e:
        raise ConfigError(f"{path} does not exist. `twinrail init` writes one, or use --demo.") from e
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read {path}: {e}") from e
    return parse_inventory(text, path.absolute())


def _table(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"[{what}] must be a table")
    return value


def _resolve(raw: dict[str, Any]) -> dict[str, Any]:
    """Apply bases, expand lists, and give every named thing its name."""
    out = dict(raw)
    deployments = _table(raw.get("deployments", {}), "deployments")
    out["deployments"] = {n: {**_with_base(n, deployments, ()), "name": n} for n in deployments}
    for kind in ("plans", "searches", "sweeps"):
        table = {**(BUILT_IN_PLANS if kind == "plans" else {}), **_table(raw.get(kind, {}), kind)}
        out[kind] = {n: {**_table(v, f"{kind}.{n}"), "name": n} for n, v in table.items()}
    cases = {**BUILT_IN_CASES, **_table(raw.get("cases", {}), "cases")}
    out["cases"] = {n: _expand(n, _table(v, f"cases.{n}")) for n, v in cases.items()}
    return out


def _with_base(name: str, table: dict[str, Any], seen: tuple[str, ...]) -> dict[str, Any]:
    if name in seen:
        raise ConfigError(f"deployments.{name}: base goes round in a circle ({' -> '.join((*seen, name))})")
    own = _table(table[name], f"deployments.{name}")
    base = own.get("base")
    if base is None:
        return own
    if base not in table:
        raise ConfigError(f"deployments.{name}: base {base!r} is not a deployment. Known: {', '.join(table)}.")
    return {**_with_base(base, table, (*seen, name)), **own}


def _expand(name: str, case: dict[str, Any]) -> list[dict[str, Any]]:
    loads = case.get("concurrency", 1)
    values = loads if isinstance(loads, list) else [loads]
    if not values:
        raise ConfigError(f"cases.{name}: concurrency is an empty list")
    return [{**case, "name": name, "concurrency": c} for c in values]


def _explain(error: ValidationError) -> str:
    """One line for each problem: where, what, and the nearest known key for a misspelt one."""
    lines = []
    for e in error.errors():
        where = ".".join(str(p) for p in e["loc"])
        if e["type"] == "extra_forbidden":
            known = sorted({f for m in Spec.__subclasses__() for f in m.model_fields})
            near = difflib.get_close_matches(str(e["loc"][-1]), known, n=1)
            lines.append(f"unknown key {where}" + (f"; did you mean {near[0]!r}?" if near else ""))
        else:
            said = e["msg"].removeprefix("Value error, ")
            lines.append(f"{where}: {said}" if where else said)
    return "; ".join(lines)


def user_name() -> str:
    """Who is asking, for locks and orders."""
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or f"uid {os.getuid()}"
