"""The container launcher (docker, podman or nerdctl, as the node says): ranks and the load client in containers.

The job is container.sh: it starts the container detached, follows its logs into the job's files, waits for its exit
code and stops it by id. The container shares the node's network; it gets the GPUs, the RDMA devices of the node's
rails, the model folder and the folder of our scripts, both read-only and at the path that they have on the node.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import orjson

from runners.engines.base import RankCommand
from runners.launchers.base import Launch, Verdict
from runners.launchers.process import Process
from runners.nodes.jobs import ENV_NAME, JobSpec
from runners.nodes.link import Link, NodeError
from runners.nodes.wire import printable
from runners.spec import Deployment, Node

PYTHON = "python3"  # inside images
CLIENT_STOP_S = 7  # the flow gives a load client 10 s to write its last lines
STOP_MARGIN_S = 3  # of the deployment's stop_timeout, for what comes after the container's own end


@dataclass(frozen=True, slots=True)
class Look:
    """What a node said, see look.sh. `refused`: exit code and text of the container engine; None when it answered."""

    image_id: str | None = None
    digests: tuple[str, ...] = ()
    refused: tuple[str, str] | None = None
    devices: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    podman: str | None = None

    @property
    def direct(self) -> bool:
        """Whether a container can write into the job's files itself: podman from version 4 on.

        Its `logs -f` may lose lines that come just before a container ends (4.3.1: its file tail then chooses at
        random between sending a line and stopping).
        """
        major = (self.podman or "").split(".", 1)[0]
        return major.isdecimal() and int(major) >= 4


class Docker:
    """See runners.launchers.base.Launcher."""

    name = "docker"

    def view(self, dep: Deployment, nodes: Sequence[Node]) -> tuple[Deployment, list[Node]]:
        inside = [node.model_copy(update={"python": PYTHON}) for node in nodes]
        return dep.model_copy(update={"python": None}), inside

    def mark(self, dep: Deployment) -> str:
        return orjson.dumps([dep.image, dep.mounts, dep.shm_size, dep.container_flags, dep.cpus]).decode()

    def planned(self, dep: Deployment, command: RankCommand, root: str) -> list[str]:
        return server_argv(dep, command, root, "JOB", "START", Look())

    def planned_client(self, dep: Deployment, node: Node, root: str, argv: list[str]) -> list[str]:
        if dep.python:
            return [dep.python, *argv]
        own = ("--name=", "--cidfile=", "--label=", "--env-file=")
        detached = client_argv(dep, node, root, "JOB", "START", Look(), argv)
        return ["-i" if word == "-d" else word for word in detached if not word.startswith(own)]

    async def server(
        self, link: Link, root: str, job_id: str, ttl_s: int, dep: Deployment, command: RankCommand
    ) -> Launch:
        seen = await _found(link, dep)
        start = uuid.uuid4().hex
        argv = server_argv(dep, command, root, job_id, start, seen)
        stop_s = max(1, int(dep.stop_timeout) - STOP_MARGIN_S)
        facts = {"image.name": str(dep.image), "image.id": seen.image_id, "image.digest": ",".join(seen.digests)}
        return Launch(
            shown=argv,
            env=command.env,
            job=container_job(link.node, job_id, ttl_s, start, stop_s, seen, argv, command.env),
            facts={name: value for name, value in facts.items() if value},
        )

    async def client(
        self, link: Link, root: str, job_id: str, ttl_s: int, dep: Deployment, argv: list[str], env: dict[str, str]
    ) -> Launch:
        if dep.python:
            return await Process().client(link, root, job_id, ttl_s, dep, argv, env)
        start = uuid.uuid4().hex
        seen = await _found(link, dep)
        shown = client_argv(dep, link.node, root, job_id, start, seen, argv)
        return Launch(
            shown=shown, env=env, job=container_job(link.node, job_id, ttl_s, start, CLIENT_STOP_S, seen, shown, env)
        )

    async def probe(
        self, link: Link, root: str, job_id: str, ttl_s: int, dep: Deployment, argv: list[str], env: dict[str, str]
    ) -> Launch:
        """By the node's own interpreter where it has one, else in a container like the load client's."""
        if (await link.run(f"command -v {shlex.quote(argv[0])} >/dev/null")).exit_code == 0:
            return await Process().probe(link, root, job_id, ttl_s, dep, argv, env)
        inside = dep.model_copy(update={"python": None})
        return await self.client(link, root, job_id, ttl_s, inside, argv[1:], env)

    def ask(self, dep: Deployment, node: Node, root: str, argv: list[str], *, as_client: bool) -> str:
        """By the node's own interpreter where it has one, else, and for the load client's sake, in a container."""
        if dep.python:
            return shlex.join([dep.python, *argv])
        once = [node.container, "run", "--rm", "--pull=never", "--network=host", *_scripts(root)]
        inside = shlex.join([*once, f"--entrypoint={PYTHON}", str(dep.image), *argv])
        if as_client:
            return inside
        python = shlex.quote(node.python)
        return f"if command -v {python} >/dev/null 2>&1; then {shlex.join([node.python, *argv])}; else {inside}; fi"

    async def check(self, link: Link, dep: Deployment) -> list[Verdict]:
        seen = await look(link, dep)
        if trouble := _troubles(link.node, dep, seen):
            return trouble
        found = [Verdict("image", "pass", f"{dep.image} is {(seen.image_id or '')[:19]}")]
        if link.node.rails and not any("uverbs" in path for path in seen.devices):
            found.append(
                Verdict(
                    "rdma_devices",
                    "warn",
                    "rails are configured, but the container gets no /dev/infiniband/uverbs*: NCCL would use TCP",
                    "load the RDMA driver on the node (ls /dev/infiniband), or take the rails out of [[nodes]]",
                )
            )
        return found

    async def inside(self, link: Link, dep: Deployment, script: str, *args: str) -> str:
        seen = await _found(link, dep)
        once = [link.node.container, "run", "--rm", "--pull=never", "--network=host"]
        once += [*_options(dep, link.node, seen), "--entrypoint=sh", str(dep.image)]
        return shlex.join([*once, "-c", script, "inside", PYTHON, *args])


@cache
def _script(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


async def look(link: Link, dep: Deployment) -> Look:
    """Ask a node for the image, the devices and the folders that a container of this deployment needs."""
    node = link.node
    sources = [mount.split(":", 1)[0] for mount in _mounts(dep)]
    argv = [node.container, str(dep.image), node.devices.vendor, " ".join(r.hca for r in node.rails)]
    argv += [source for source in sources if source.startswith("/")]
    done = await link.run(shlex.join(["sh", "-c", _script("look.sh"), "look", *argv]), timeout=40.0)
    return parse_look(done.stdout.decode("utf-8", "replace"))


def parse_look(text: str) -> Look:
    """The answer of look.sh; no answer about the image is a refusal."""
    image: list[str] = []
    refused: tuple[str, str] | None = ("", "no answer")
    found: dict[str, list[str]] = {"device": [], "missing": [], "podman": []}
    for line in text.splitlines()[:200]:
        word, _, rest = line.partition(" ")
        if word == "image" and rest.split():
            image, refused = rest.split(), None
        elif word == "refused":
            code, _, said = rest.partition(" ")
            refused = (code, printable(said.encode()))
        elif word in found:
            found[word].append(rest)
    return Look(
        image_id=image[0] if image else None,
        digests=tuple(image[1:]),
        refused=refused,
        devices=tuple(found["device"]),
        missing=tuple(found["missing"]),
        podman=found["podman"][0] if found["podman"] else None,
    )


async def _found(link: Link, dep: Deployment) -> Look:
    """The look of a node where nothing stands in the way. Raises NodeError."""
    seen = await look(link, dep)
    if trouble := _troubles(link.node, dep, seen):
        said = "; ".join(f"{v.detail}: {v.fix}" for v in trouble)
        raise NodeError("missing", f"{link.node.name}: {said}")
    return seen


def _troubles(node: Node, dep: Deployment, seen: Look) -> list[Verdict]:
    """Why no container can be started there, each with what to do."""
    engine = node.container
    daemon = {"nerdctl": "containerd", "podman": "podman.socket"}.get(engine, engine)
    found = [
        Verdict("mounts", "fail", f"{path} is not there", "correct model = or mounts =, or copy it to the node")
        for path in seen.missing
    ]
    if seen.refused is not None:
        code, said = seen.refused
        low = said.lower()
        if code == "127":
            detail, fix = f"no {engine} there", 'install it, or set container = "podman" (or "nerdctl") in [[nodes]]'
        elif code == "124":
            detail, fix = f"{engine} does not answer within 20 s", f"look at its daemon: systemctl status {daemon}"
        elif "permission denied" in low or "rootless containerd not running" in low:
            detail = f"{engine} refuses this user ({said})"
            fix = 'set become = "sudo -n" in [[nodes]]' + (
                ", or add the user to the docker group" if engine == "docker" else ""
            )
        elif "cannot connect" in low or "cannot access containerd" in low:
            detail, fix = f"{engine} is down ({said})", f"start it: systemctl start {daemon}"
        elif any(words in low for words in ("no such image", "no such object", "image not known", "not found")):
            detail = f"image {dep.image} is not there"
            fix = f"`{engine} pull {dep.image}` there (or save, copy, load); `{engine} images` lists what it has"
        else:
            detail, fix = f"{engine} image inspect: {said}", f"try it there: {engine} image inspect {dep.image}"
        found.append(Verdict("image", "fail", detail, fix))
    return found


def server_argv(dep: Deployment, command: RankCommand, root: str, job_id: str, start: str, seen: Look) -> list[str]:
    """The whole `docker run -d ...` of a rank."""
    node = command.node
    options = _options(dep, node, seen)
    if command.env.get("NCCL_DEBUG_FILE", "").startswith(folder := f"{root}/nccl/{job_id}"):
        options += ["-v", f"{folder}:{folder}"]
    return [*_head(node, root, job_id, start, seen), *options, *_tail(dep, command.argv)]


def _options(dep: Deployment, node: Node, seen: Look) -> list[str]:
    """Limits, devices, CPUs and mounts of a rank."""
    options = ["--ulimit=memlock=-1", "--ulimit=stack=67108864"]
    options.append(f"--shm-size={dep.shm_size}" if dep.shm_size else "--ipc=host")
    if node.devices.vendor == "nvidia" and node.devices.count:
        options.append("--device=nvidia.com/gpu=all" if node.container == "podman" else "--gpus=all")
    elif node.devices.vendor in ("amd", "hygon"):
        options.append("--group-add=video")
    options += [f"--device={path}" for path in seen.devices]
    options += [f"--cpuset-cpus={dep.cpus}"] if dep.cpus else []
    for mount in _mounts(dep):
        options += ["-v", mount]
    return [*options, *dep.container_flags]


def client_argv(
    dep: Deployment, node: Node, root: str, job_id: str, start: str, seen: Look, argv: list[str]
) -> list[str]:
    """The whole `docker run -d ...` of the load client: the engine's image, no device, a CPU set of its own, the job's
    folder for result files and the model's for its tokenizer."""
    folder = f"{root}/jobs/{job_id}"
    options = [f"--cpuset-cpus={dep.client_cpus}"] if dep.client_cpus else []
    for mount in (f"{folder}:{folder}", *_mounts(dep)):
        options += ["-v", mount]
    return [*_head(node, root, job_id, start, seen), *options, *_tail(dep, [PYTHON, *argv])]


def _head(node: Node, root: str, job_id: str, start: str, seen: Look) -> list[str]:
    folder = f"{root}/jobs/{job_id}"
    return [
        *(node.container, "run", "-d", f"--name={container_name(job_id)}", f"--cidfile={folder}/container.id"),
        *(f"--label=twinrail.job={job_id}", f"--label=twinrail.start={start}"),
        *("--pull=never", "--network=host", f"--env-file={folder}/container.env"),
        f"--log-driver={'passthrough' if seen.direct else 'json-file'}",
        *_scripts(root),
    ]


def _tail(dep: Deployment, argv: list[str]) -> list[str]:
    """An image's own entry point would come before the command: it is replaced by the command's program."""
    return [f"--entrypoint={argv[0]}", str(dep.image), *argv[1:]]


def _scripts(root: str) -> list[str]:
    return ["-v", f"{root}/bin:{root}/bin:ro"]


def container_name(job_id: str) -> str:
    """Name of a job's container."""
    return f"twinrail-{job_id}"


def _mounts(dep: Deployment) -> list[str]:
    """The operator's mounts, and the model folder when none of them covers it.

    A snapshot of a Hugging Face cache is links into its neighbour `blobs`: then the folder above both is mounted.
    """
    model = PurePosixPath(dep.model)
    targets = [PurePosixPath(mount.split(":")[1]) for mount in dep.mounts]
    if not model.is_absolute() or any(model.is_relative_to(target) for target in targets):
        return list(dep.mounts)
    if model.parent.name == "snapshots":
        model = model.parent.parent
    return [*dep.mounts, f"{model}:{model}:ro"]


def container_job(
    node: Node, job_id: str, ttl_s: int, start: str, stop_s: int, seen: Look, argv: list[str], env: dict[str, str]
) -> JobSpec:
    """The job that runs `argv`, a whole `docker run -d ...`, see container.sh. Raises NodeError, see env_file."""
    wrapper = ["sh", "-c", _script("container.sh"), "container", node.container, "direct" if seen.direct else "follow"]
    return JobSpec(
        job_id=job_id,
        argv=[*wrapper, container_name(job_id), start, str(stop_s), *argv],
        secrets={"TWINRAIL_CONTAINER_ENV": env_file(node, env)},
        ttl_s=ttl_s,
    )


def env_file(node: Node, env: dict[str, str]) -> str:
    """The variables in the form of --env-file, which knows no quoting and so no line breaks.

    Raises:
        NodeError: a value with a line break, or a name that is none.
    """
    for name, value in env.items():
        if "\n" in value or "\r" in value or not ENV_NAME.fullmatch(name):
            raise NodeError(
                "protocol", f"{node.name}: variable {name!r} cannot be given to a container: one line, plain name only"
            )
    return "".join(f"{name}={value}\n" for name, value in env.items())
