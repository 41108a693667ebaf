"""What a container is started with, from the deployment and what the node told."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from runners.engines.base import RankCommand
from runners.launchers import LAUNCHERS
from runners.launchers.docker import Docker, Look, _troubles, client_argv, env_file, parse_look, server_argv
from runners.launchers.ranks import mark_of, rank_commands
from runners.nodes.link import NodeError
from runners.spec import Deployment, Node

NODE = Node.model_validate(
    {"name": "node5", "host": "node5", "python": "/opt/py", "rails": [{"netdev": "eth0", "hca": "mlx5_0"}]}
)
DEP = Deployment(
    name="sg",
    engine="sglang",
    launcher="docker",
    image="lmsysorg/sglang:v1",
    model="/models/m",
    nodes=["node5"],
    cpus="0-31",
    client_cpus="32-39",
    container_flags=["--cap-add=SYS_NICE"],
)
SEEN = parse_look(
    "podman 5.1.0\nimage sha256:ab repo@sha256:cd\ndevice /dev/infiniband/uverbs0\ndevice /dev/infiniband/rdma_cm\n"
)
COMMAND = RankCommand(NODE, 0, ["python3", "-m", "sglang.launch_server"], {"HF_TOKEN": "s3cret"})


def argv(dep: Deployment = DEP, node: Node = NODE, seen: Look = SEEN) -> list[str]:
    return server_argv(dep, RankCommand(node, 0, COMMAND.argv, COMMAND.env), "/home/u/.twinrail", "L1.r0", "abc", seen)


def test_a_rank_gets_gpus_rails_model_and_scripts_and_no_secret() -> None:
    words = argv()
    assert words[:3] == ["docker", "run", "-d"]
    assert words[-4:] == ["--entrypoint=python3", "lmsysorg/sglang:v1", "-m", "sglang.launch_server"]
    for word in (
        *("--network=host", "--ipc=host", "--ulimit=memlock=-1", "--gpus=all", "--cpuset-cpus=0-31"),
        *("--device=/dev/infiniband/uverbs0", "--device=/dev/infiniband/rdma_cm", "--cap-add=SYS_NICE"),
        *("/models/m:/models/m:ro", "/home/u/.twinrail/bin:/home/u/.twinrail/bin:ro", "--name=twinrail-L1.r0"),
        *("--cidfile=/home/u/.twinrail/jobs/L1.r0/container.id", "--label=twinrail.start=abc", "--pull=never"),
    ):
        assert word in words
    assert "s3cret" not in " ".join(words)


@pytest.mark.parametrize(
    ("node", "word"),
    [
        ({"container": "podman"}, "--device=nvidia.com/gpu=all"),
        ({"devices": {"vendor": "amd"}}, "--group-add=video"),
        ({"devices": {"count": 0}}, None),
    ],
)
def test_devices_follow_the_node(node: dict[str, object], word: str | None) -> None:
    words = argv(node=Node.model_validate({**NODE.model_dump(), **node}))
    assert "--gpus=all" not in words
    assert word is None or word in words


def test_shared_memory_of_its_own_instead_of_the_nodes() -> None:
    words = argv(DEP.model_copy(update={"shm_size": "32g"}))
    assert "--shm-size=32g" in words
    assert "--ipc=host" not in words


@pytest.mark.parametrize(
    ("model", "mounts", "mounted"),
    [
        ("/models/m", ["/data:/models:ro"], ["/data:/models:ro"]),
        ("org/model", [], []),
        ("/hub/models--o--m/snapshots/abc", [], ["/hub/models--o--m:/hub/models--o--m:ro"]),
    ],
)
def test_what_is_mounted_for_the_model(model: str, mounts: list[str], mounted: list[str]) -> None:
    words = argv(DEP.model_copy(update={"model": model, "mounts": mounts}))
    assert [words[n + 1] for n, word in enumerate(words) if word == "-v"][1:] == mounted


@pytest.mark.parametrize(("version", "driver"), [("4.3.1", "passthrough"), ("3.4.4", "json-file"), ("", "json-file")])
def test_podman_writes_into_the_jobs_files_itself(version: str, driver: str) -> None:
    assert f"--log-driver={driver}" in argv(seen=parse_look(f"podman {version}\nimage a"))


def test_the_load_client_has_a_container_and_cpus_of_its_own() -> None:
    words = client_argv(DEP, NODE, "/r", "a1.client", "abc", SEEN, ["/r/bin/loadgen.py"])
    assert "--cpuset-cpus=32-39" in words
    assert not [word for word in words if word.startswith(("--gpus", "--device"))]
    assert words[-3:] == ["--entrypoint=python3", "lmsysorg/sglang:v1", "/r/bin/loadgen.py"]
    mounts = [words[n + 1] for n, word in enumerate(words) if word == "-v"]
    assert mounts == ["/r/bin:/r/bin:ro", "/r/jobs/a1.client:/r/jobs/a1.client", "/models/m:/models/m:ro"]
    own = DEP.model_copy(update={"python": "/opt/venv/bin/python"})
    assert LAUNCHERS["docker"].planned_client(own, NODE, "/r", ["x.py"]) == ["/opt/venv/bin/python", "x.py"]


def test_the_engine_runs_with_the_images_interpreter() -> None:
    for dep in (DEP, DEP.model_copy(update={"python": "/opt/venv/bin/python"})):
        (command,) = rank_commands(dep, [NODE], lambda node, script: script)
        assert command.argv[0] == "python3"


def test_another_image_is_another_server() -> None:
    commands = rank_commands(DEP, [NODE], lambda node, script: script)
    assert mark_of(DEP, commands) == mark_of(DEP, commands)
    assert mark_of(DEP.model_copy(update={"image": "lmsysorg/sglang:v2"}), commands) != mark_of(DEP, commands)


def test_questions_go_to_the_nodes_interpreter_where_it_has_one() -> None:
    line = Docker().ask(DEP, NODE, "/r", ["ask.py", "get"], as_client=False)
    assert line.startswith("if command -v /opt/py ")
    assert "docker run --rm" in line
    assert Docker().ask(DEP, NODE, "/r", ["ask.py", "client"], as_client=True).startswith("docker run --rm")


def test_a_line_break_cannot_travel_in_an_env_file() -> None:
    assert env_file(NODE, {"A": "x y", "B": ""}) == "A=x y\nB=\n"
    for bad in ({"A": "x\ny"}, {"A\nB": "x"}, {"A=B": "x"}):
        with pytest.raises(NodeError, match="node5"):
            env_file(NODE, bad)


def test_no_answer_about_the_image_is_a_refusal() -> None:
    assert parse_look("").refused == ("", "no answer")
    assert "\x1b" not in str(parse_look("refused 1 \x1b[2J").refused)


@pytest.mark.parametrize(
    "wrong", [{"image": None}, {"mounts": ["/a"]}, {"mounts": ["/a:b"]}, {"mounts": ["/a:/b:r/w"]}]
)
def test_what_a_container_cannot_do_without(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Deployment.model_validate({**DEP.model_dump(), **wrong})


# Options of `run` that nerdctl knows (its docs/command-reference.md) and that docker and podman share.
EVERYWHERE = {
    *("-d", "-v", "--name", "--cidfile", "--label", "--pull", "--network", "--env-file", "--log-driver", "--ipc"),
    *("--ulimit", "--shm-size", "--gpus", "--device", "--group-add", "--cpuset-cpus", "--entrypoint"),
}


@pytest.mark.parametrize("engine", ["docker", "podman", "nerdctl"])
@pytest.mark.parametrize("vendor", ["nvidia", "amd", "hygon", "none"])
def test_only_options_that_all_three_engines_know(engine: str, vendor: str) -> None:
    node = Node.model_validate({**NODE.model_dump(), "container": engine, "devices": {"vendor": vendor}})
    seen = parse_look("image a\ndevice /dev/kfd\n")
    dep = DEP.model_copy(update={"container_flags": []})
    for words in (argv(dep, node, seen), client_argv(dep, node, "/r", "c", "abc", seen, ["x.py"])):
        assert words[:2] == [engine, "run"]
        options = {w.partition("=")[0] for w in words[2 : words.index(str(dep.image))] if w.startswith("-")}
        assert options <= EVERYWHERE
        assert "--log-driver=json-file" in words  # nerdctl and podman 3 have no passthrough


@pytest.mark.parametrize(
    ("engine", "said", "detail", "fix"),
    [
        (
            "docker",
            "1 permission denied while trying to connect to the Docker daemon socket",
            "refuses",
            "docker group",
        ),
        ("nerdctl", "1 rootless containerd not running? (hint: ...)", "refuses this user", 'become = "sudo -n"'),
        (
            "nerdctl",
            '1 cannot access containerd socket "/run/c.sock"',
            "is down",
            "start containerd",
        ),
        ("nerdctl", "1 1 errors: no such object: an/image:1", "is not there", "nerdctl pull"),
        ("podman", "125 Error: inspecting object: an/image:1: image not known", "is not there", "podman pull"),
        ("docker", "1 Error: No such image: an/image:1", "is not there", "docker pull"),
        ("docker", "124 ", "does not answer", "systemctl status docker"),
        ("nerdctl", "127 no such command", "no nerdctl there", "install it"),
        ("docker", "1 something new", "something new", "docker image inspect"),
    ],
)
def test_what_an_engine_says_becomes_the_next_step(engine: str, said: str, detail: str, fix: str) -> None:
    node = NODE.model_copy(update={"container": engine})
    (verdict,) = _troubles(node, DEP, parse_look(f"refused {said}"))
    assert detail in verdict.detail
    assert fix in verdict.fix
