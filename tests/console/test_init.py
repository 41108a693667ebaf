"""`twinrail init` against the embedded lab, and what it says when something is not right."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from console.verbs.init import InitRequest, run_init
from console.verbs.init_text import NO_MODEL, Found, Proposal, node_name, propose, toml_text
from runners.flows.survey import Survey, parse_survey
from runners.lab import control
from runners.spec import load_inventory, parse_inventory
from runners.ssh_hosts import SshHost, ssh_hosts


class Scripted:
    """Answers by the first words of the question; what is not scripted takes the default."""

    def __init__(self, answers: dict[str, str | bool]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def _answer(self, question: str, default: str | bool) -> str | bool:
        self.asked.append(question)
        return next((a for start, a in self.answers.items() if question.startswith(start)), default)

    def text(self, question: str, default: str) -> str:
        return str(self._answer(question, default))

    def yes(self, question: str, *, default: bool) -> bool:
        return bool(self._answer(question, default))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("lab")
    control.start(folder)
    yield folder
    control.stop(folder)


def request(lab: Path, target: Path, **more: object) -> InitRequest:
    return InitRequest(target=target, ssh_config=lab / "ssh_config", **more)  # type: ignore[arg-type]  # test's shorthand


def test_yes_writes_what_the_nodes_have(lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "twinrail.toml"
    assert run_init(request(lab, target, yes=True, as_json=True)) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    assert (told["path"], told["written"]) == (str(target), True)
    made = load_inventory(target)
    assert [n.name for n in made.nodes] == ["node5", "node7"] == [n["name"] for n in told["nodes"]]
    for node, shown in zip(made.nodes, told["nodes"], strict=True):
        assert node.devices.model_dump() == {"vendor": "nvidia", "count": 8}
        assert (shown["reached"], shown["gpus"]) == (True, 8)
        assert [(r.netdev, r.hca, r.gbps) for r in node.rails] == [("eth0", "mlx5_0", 400), ("eth3", "mlx5_3", 400)]
        assert node.ssh_config == str(lab / "ssh_config")
    deployment = made.deployments[told["deployment"]["name"]]
    assert deployment.nodes == ["node5", "node7"]
    assert deployment.topology.tp == 16
    quick = made.cases["quick"][0]
    assert (quick.concurrency, quick.budget) == (16, 120)
    assert "#" in target.read_text()


def test_the_answers_are_taken(lab: Path, tmp_path: Path) -> None:
    target = tmp_path / "twinrail.toml"
    answers: dict[str, str | bool] = {"Nodes": "node7", "Engine": "vllm", "Image": "an/image:1", "Model": "/m/x"}
    asker = Scripted(answers)
    assert run_init(request(lab, target), asker) == 0
    made = load_inventory(target)
    assert [n.name for n in made.nodes] == ["node7"]
    assert (made.deployments["main"].engine, made.deployments["main"].model) == ("vllm", "/m/x")
    assert asker.asked[-1].startswith("Write ")


def test_a_file_that_is_there_is_not_replaced_unasked(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "twinrail.toml"
    target.write_text("mine")
    assert run_init(request(lab, target, yes=True)) == 2
    assert "--force" in capsys.readouterr().err
    assert run_init(request(lab, target), Scripted({})) == 1
    assert target.read_text() == "mine"
    assert run_init(request(lab, target, yes=True, force=True)) == 0
    assert load_inventory(target).nodes


def test_not_written_when_not_wanted_but_shown(lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "twinrail.toml"
    assert run_init(request(lab, target), Scripted({"Write": False})) == 1
    assert not target.exists()
    assert len(parse_inventory(capsys.readouterr().out).nodes) == 2


def test_a_node_that_does_not_answer_is_named_and_left_out(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "twinrail.toml"
    config = tmp_path / "ssh_config"
    config.write_text(f"Include {lab / 'ssh_config'}\nHost away\n  HostName 127.0.0.1\n  Port 9\n")
    asked = InitRequest(["node5", "away"], target, config, yes=True)
    assert run_init(asked) == 0
    assert "away: not reached" in capsys.readouterr().err
    assert [n.name for n in load_inventory(target).nodes] == ["node5"]
    assert "# away: not reached. " in target.read_text()
    target.unlink()
    assert run_init(InitRequest(["away"], target, config, yes=True, as_json=True)) == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["written"], told["nodes"][0]["reached"]) == (False, False)
    assert told["nodes"][0]["error"]
    assert not target.exists()


def test_one_may_stop_where_a_node_is_missing_and_every_node_has_its_next_step(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, config = tmp_path / "twinrail.toml", tmp_path / "ssh_config"
    port = json.loads((lab / "lab.json").read_text())["ports"]["node7"]
    config.write_text(
        f"Include {lab / 'ssh_config'}\nHost away\n  HostName 127.0.0.1\n  Port 9\n"
        f"Host locked\n  HostName 127.0.0.1\n  Port {port}\n  User lab\n  IdentityFile /dev/null\n"
        f"  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {lab / 'known_hosts'}\n"
        f"Host strange\n  HostName 127.0.0.1\n  Port {port}\n  UserKnownHostsFile /dev/null\n"
    )
    asker = Scripted({"Go on without": False})
    hosts = ["node5", "away", "locked", "strange"]
    assert run_init(InitRequest(hosts, target, config), asker) == 1
    assert "Go on without away, locked, strange?" in asker.asked
    said = capsys.readouterr().err
    assert f"next for away: `ssh -F {config} away true`" in said
    assert f"next for locked: `ssh -F {config} -v locked true`" in said
    assert f"next for strange: `twinrail trust strange --ssh-config {config}`" in said
    assert not target.exists()


def test_what_is_still_wanted_is_said(lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asker = Scripted({"Engine": "vllm", "Image": "-", "Nodes": "node5"})
    assert run_init(request(lab, tmp_path / "t.toml"), asker) == 0
    said = capsys.readouterr().out
    assert "first: no model folder was found" in said
    assert "aiohttp" not in said  # the interpreter that runs twinrail has it, and was found at the same path
    assert load_inventory(tmp_path / "t.toml").nodes[0].python == sys.executable


def test_an_unknown_key_is_trusted_only_when_asked(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "twinrail.toml"
    config, mine = tmp_path / "ssh_config", tmp_path / "known"
    config.write_text((lab / "ssh_config").read_text().replace(str(lab / "known_hosts"), str(mine)))
    assert run_init(InitRequest(["node5"], target, config, yes=True)) == 3
    assert "twinrail trust node5" in capsys.readouterr().err
    assert not mine.exists()
    trusting = Scripted({"[127.0.0.1]": True, "127.0.0.1": True, "node5": True})
    assert run_init(InitRequest(["node5"], target, config), trusting) == 0
    assert mine.read_text()


def test_ctrl_c_at_a_question_leaves_in_words(lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Leaves(Scripted):
        def text(self, question: str, default: str) -> str:
            raise typer.Abort

    assert run_init(request(lab, tmp_path / "t.toml"), Leaves({})) == 1
    assert capsys.readouterr().err.endswith("twinrail: left; nothing was written\n")
    assert not (tmp_path / "t.toml").exists()


def test_without_a_terminal_it_says_what_to_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", (tmp_path / "nothing").open("w+"))
    assert run_init(InitRequest(target=tmp_path / "twinrail.toml")) == 2
    assert "--yes" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["folder", "config", "hosts"])
def test_what_cannot_work_is_said_with_the_next_step(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    asked = {
        "folder": InitRequest(target=tmp_path / "no" / "t.toml", yes=True),
        "config": InitRequest(target=tmp_path / "t.toml", ssh_config=tmp_path / "absent", yes=True),
        "hosts": InitRequest(target=tmp_path / "t.toml"),
    }[what]
    assert run_init(asked, Scripted({"Nodes": ""}) if what == "hosts" else None) == 2
    said = capsys.readouterr().err
    assert said.startswith("twinrail: ")
    assert ": make it" in said or "name the one" in said or "twinrail init HOST" in said


def test_a_place_that_cannot_be_written_is_said(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_init(request(lab, Path("/proc/twinrail.toml"), yes=True)) == 3
    assert "cannot write /proc/twinrail.toml" in capsys.readouterr().err


def test_hosts_of_an_ssh_config(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.conf").write_text("host=gpu2\n hostname = %h.example\nInclude ../config\n")
    (tmp_path / "config").write_text(
        "Include more/*.conf\nHost gpu1 gpu-*\n  HostName 192.0.2.1\nHost *\n  User x\nHost github.com\n"
        "Host git\n  HostName github.com\nMatch host z\n  HostName 192.0.2.9\nHost 'unclosed\n"
    )
    assert ssh_hosts(tmp_path / "config") == [SshHost("gpu2", "gpu2.example"), SshHost("gpu1", "192.0.2.1")]
    assert ssh_hosts(tmp_path / "absent") == []


SAID = (
    "vendor\tnvidia\ngpu\tGPU 0: NVIDIA H200 (UUID: GPU-0)\ngpu\tGPU 1: NVIDIA H200 (UUID: GPU-1)\n"
    "rail\tmlx5_0\teth0\t198.18.1.5\t4: ACTIVE;400 Gb/sec (4X NDR)\n"
    "rail\tmlx5_1\tmgmt0\tmain 192.0.2.5\t4: ACTIVE;25 Gb/sec\nrail\tmlx5_2\teth2\t\t1: DOWN;\n"
    "refused\tdocker\tpermission denied\nbecome\tpodman\n"
    "image\tpodman\tvllm/vllm-openai:v1\nimage\tpodman\t<none>:<none>\n"
    "model\t/models/m\nmodel\trelative\npython\tpython3\npython\t/opt/x/python3\nmodule\taiohttp\nend\n"
)


def test_the_answer_of_a_node() -> None:
    s = parse_survey(SAID)
    assert (s.vendor, len(s.gpus), s.gpu_name) == ("nvidia", 2, "NVIDIA H200")
    assert [(r.netdev, r.hca, r.gbps, r.address) for r in s.rails] == [("eth0", "mlx5_0", 400, "198.18.1.5")]
    assert len(s.idle_rails) == 2
    assert (s.container, s.become, s.images) == ("podman", True, ["vllm/vllm-openai:v1"])
    assert (s.models, s.python, s.modules) == (["/models/m"], "/opt/x/python3", ["aiohttp"])


def test_hostile_names_stay_inside_their_strings() -> None:
    evil = 'x"\\]\n[nodes]'
    s = parse_survey(SAID.replace("/models/m", '/models/"]#\x1b[2J').replace("eth0", 'e"\\u'))
    node = Found(node_name(evil, []), evil, survey=s)
    text = toml_text([node], propose([node]))
    made = parse_inventory(text)
    assert made.nodes[0].host == evil
    assert made.nodes[0].rails[0].netdev == 'e"\\u'
    assert "\x1b" not in text


def test_nodes_without_rail_addresses_are_reached_by_their_ssh_address() -> None:
    node = Found("n", "n", address="192.0.2.5", survey=parse_survey(SAID.replace("198.18.1.5", "")))
    assert parse_inventory(toml_text([node], propose([node]))).nodes[0].address == "192.0.2.5"
    node.survey = parse_survey(SAID)
    assert parse_inventory(toml_text([node], propose([node]))).nodes[0].address is None


def test_the_port_of_the_default_route_is_a_rail_unless_others_are_faster() -> None:
    text = "rail\tmlx5_0\teth0\tmain 192.0.2.5\t4: ACTIVE;400 Gb/sec\nrail\tmlx5_3\teth3\t\t4: ACTIVE;400 Gb/sec\n"
    assert [r.netdev for r in parse_survey(text).rails] == ["eth0", "eth3"]
    assert [r.netdev for r in parse_survey(text.replace("400", "25", 1)).rails] == ["eth3"]


def test_what_is_proposed() -> None:
    def found(**more: object) -> Found:
        return Found("n", "n", survey=Survey(**more))  # type: ignore[arg-type]  # test's shorthand

    both = [found(images=["a/vllm:1"], models=["/m", "/n"], gpus=["g"] * 8), found(images=["a/vllm:1"], models=["/n"])]
    assert propose(both) == Proposal("main", "vllm", "a/vllm:1", "/n", 9)
    assert propose([found(modules=["sglang"])]) == Proposal("main", "sglang", None, NO_MODEL, 1)
    assert propose([found(images=["a/vllm:1"]), found()]).engine == "sim"
    assert node_name("192.0.2.1", ["192.0.2.1"]) == "192.0.2.1-2"
