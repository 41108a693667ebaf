"""Launch files become the deployment that they start; what has no place is listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from console.importing import import_file
from runners.importing.compose import read_compose
from runners.importing.deployment import parse_argv
from runners.importing.docker_args import parse
from runners.importing.files import import_files, read_file
from runners.importing.yaml_subset import YamlError, load

DATA = Path(__file__).parents[2] / "data" / "launch"
SHARED = Path(__file__).parents[4] / "shared" / "fixtures" / "import"


NAMED = {
    "--model-path", "--model", "-tp", "--tp", "--tp-size", "--tensor-parallel-size", "--pipeline-parallel-size",
    "--host", "--port", "--served-model-name", "--nnodes", "--node-rank", "--dist-init-addr", "--master-addr",
}  # fmt: skip


def matches(found: dict[str, Any], expect: dict[str, Any]) -> None:
    commands = [{key: item[key] for key in ("node_rank", "argv", "env")} for item in found["commands"]]
    assert commands == expect["commands"]
    assert found["deployment"]["image"] == expect["image"]
    assert found["deployment"]["mounts"] == expect["mounts"]
    unplaced = [item["text"] for item in found["unplaced"]]
    for text in expect["must_be_unplaced_substr"]:
        assert any(text in item for item in unplaced), text
    for text in expect["must_not_be_lost_substr"]:
        whole = json.dumps(found)
        assert any(item in whole for item in (text if isinstance(text, list) else [text])), text


@pytest.mark.parametrize("path", sorted(DATA.glob("*.expect.json")), ids=lambda path: path.name)
def test_samples(path: Path) -> None:
    stem = path.name.removesuffix(".expect.json")
    source = next(item for item in DATA.glob(f"{stem}.*") if item != path)
    matches(import_files([source]), json.loads(path.read_text()))


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the wide sample collection is not beside this checkout")
def test_all_shared_samples() -> None:
    for path in SHARED.glob("*.expect.json"):
        stem = path.name.removesuffix(".expect.json")
        source = next(item for item in SHARED.glob(f"{stem}.*") if item != path)
        matches(import_files([source]), json.loads(path.read_text()))


def test_two_files_that_differ_by_rank_are_one_deployment() -> None:
    found = import_files([DATA / "d-pair-rank1.sh", DATA / "c-pair-rank0.sh"])
    assert [item["node_rank"] for item in found["commands"]] == [0, 1]
    assert found["deployment"]["topology"] == {"tp": 16}
    assert found["deployment"]["nnodes"] == 2
    assert found["deployment"]["flags"] == ["--trust-remote-code"]
    assert found["deployment"]["env"]["NCCL_IB_GID_INDEX"] == "3"


def test_arguments_arrays_and_conditions() -> None:
    found = import_files([DATA / "g-arrays-and-arguments.sh"])
    (command,) = found["commands"]
    assert command["node_rank"] == 0
    assert command["wrapper"] == ["numactl", "--cpunodebind=0", "--membind=0"]
    assert command["env"]["SGLANG_ENABLE_X"] == "1"
    assert "--enable-metrics" in command["argv"]
    assert "--debug" not in command["argv"]
    texts = [item["text"] for item in found["unplaced"]]
    assert "COMMON+=(--log-level warning)" in texts
    assert any("tee /var/log" in text for text in texts)


def test_docker_with_a_shell_inside() -> None:
    found = import_files([DATA / "h-docker-bash.sh"])
    (command,) = found["commands"]
    assert command["argv"][:3] == ["python3", "-m", "sglang.launch_server"]
    assert command["node_rank"] == 1
    assert command["env"]["NCCL_DEBUG"] == "WARN"
    assert command["env"]["NCCL_IB_HCA"] == "mlx5_0,mlx5_3"
    assert command["env"]["HF_TOKEN"] == "$HF_TOKEN"
    assert found["deployment"]["mounts"] == ["/data/models:/models:ro", "/tmp/x:/tmp/x", "/opt/cache:/root/.cache"]
    options = dict(map(tuple, command["container"]["options"]))
    assert options["--shm-size"] == "32g"
    assert options["--gpus"] == '"device=0,1,2,3"'
    assert any(item["text"] == "cd /workspace" for item in found["unplaced"])


def test_ssh_to_two_nodes() -> None:
    found = import_files([DATA / "i-two-nodes-over-ssh.sh"])
    hosts = [(item["node_rank"], item["host"]) for item in found["commands"] if item["host"]]
    assert (0, "node5") in hosts
    assert (1, "node7") in hosts


def test_one_script_for_both_ranks_gives_both() -> None:
    found = import_files([DATA / "k-both-ranks.sh"])
    assert [item["node_rank"] for item in found["commands"]] == [0, 1]
    assert found["deployment"]["topology"] == {"tp": 16}
    assert all(item["env"] == {"NCCL_CROSS_NIC": "0"} for item in found["commands"])


def test_compose_with_anchors_and_a_pair() -> None:
    found = import_files([DATA / "l-compose-two.yml"])
    first, second = found["commands"]
    assert first["argv"] == [
        "vllm", "serve", "/models/X", "--tensor-parallel-size", "16", "--nnodes", "2", "--node-rank", "0",
        "--override-generation-config", '{"temperature": 0.0}',
    ]  # fmt: skip
    assert first["env"] == {
        "NCCL_IB_HCA": "mlx5_0,mlx5_3",
        "HF_TOKEN": "$HF_TOKEN",
        "VLLM_HOST_IP": "192.0.2.1",
    }
    assert second["argv"][-1] == "--headless"
    assert second["env"]["NCCL_DEBUG"] == "INFO"
    assert found["deployment"]["mounts"] == ["/data/models:/models:ro"]
    assert ["--ulimit", "stack=67108864:67108864"] in first["container"]["options"]
    assert ["--gpus", "all"] in first["container"]["options"]
    texts = "\n".join(item["text"] for item in found["unplaced"])
    assert "healthcheck" in texts
    assert "nginx" in texts


def launched(tmp_path: Path, script: str) -> dict[str, Any]:
    path = tmp_path / "run.sh"
    path.write_text(script)
    return import_files([path])


def test_a_check_that_may_exit_does_not_hide_the_start(tmp_path: Path) -> None:
    found = launched(tmp_path, "if ! command -v nvidia-smi; then echo none; exit 1; fi\nvllm serve /m\n")
    assert found["commands"][0]["argv"] == ["vllm", "serve", "/m"]
    assert {"line": 1, "text": "echo none"} in found["unplaced"]


def test_a_loop_that_restarts_the_server(tmp_path: Path) -> None:
    found = launched(tmp_path, "while true; do\n  vllm serve /m\n  sleep 5\ndone\nwhile ! curl x; do sleep 1; done\n")
    assert found["commands"][0]["argv"] == ["vllm", "serve", "/m"]
    assert [item["text"] for item in found["unplaced"]] == ["sleep 5", "while ! curl x; do sleep 1; done"]


def test_what_only_a_shell_knows_stays_text_and_is_told(tmp_path: Path) -> None:
    found = launched(
        tmp_path, 'IP=$(hostname -I | cut -d" " -f1)\nexport $(cat .env)\nvllm serve $MODEL --host $IP --seed `date`\n'
    )
    assert found["commands"][0]["argv"] == [
        "vllm", "serve", "$MODEL", "--host", '$(hostname -I | cut -d" " -f1)', "--seed", "`date`",
    ]  # fmt: skip
    assert set(found["deployment"]["unresolved"]) == {"$MODEL", '$(hostname -I | cut -d" " -f1)', "`date`"}
    assert [item["text"] for item in found["unplaced"]] == ["export $(cat .env)"]


def test_secrets_are_masked(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "export HF_TOKEN=hf_0123456789abcdefXYZ\nvllm serve /m --api-key s3cret\ncurl -H token=abc123def x\n"
    )
    text = json.dumps(import_files([path]))
    assert "s3cret" not in text
    assert "hf_0123456789abcdefXYZ" not in text


def test_keys_and_flags_cover_every_word() -> None:
    for path in sorted(DATA.glob("*.sh")):
        for launch in read_file(path).launches:
            parsed = parse_argv(launch.argv, launch.engine)
            placed = [*parsed.program, *parsed.flags, *map(str, parsed.keys.values())]
            left = [word for word in launch.argv if word not in placed and word.partition("=")[2] not in placed]
            assert all(word in NAMED for word in left), (path.name, left)


def test_a_file_without_an_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.sh"
    path.write_text("echo hello\n")
    assert import_file(path, json_out=True) == 1
    assert json.loads(capsys.readouterr().out)["unplaced"] == [{"line": 1, "text": "echo hello"}]
    assert import_file(tmp_path / "absent.sh", json_out=True) == 2
    (tmp_path / "bad.yml").write_text("a: [1\n b: {")
    assert import_file(tmp_path / "bad.yml", json_out=True) in (1, 2)


def test_docker_options() -> None:
    found = parse(["run", "-dit", "--rm", "-p8000:8000", "-e", "A=b c", "--name=x", "img", "vllm", "serve", "-d"])
    assert found is not None
    assert found.target == "img"
    assert found.command == ["vllm", "serve", "-d"]
    assert found.env == {"A": "b c"}
    assert found.options == [("-d", None), ("-i", None), ("-t", None), ("--rm", None), ("--publish", "8000:8000"),
                             ("--name", "x")]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("a: 1\nb:\n  - x\n  - y: z\n    w: v\n", {"a": "1", "b": ["x", {"y": "z", "w": "v"}]}),
        ("a: |\n  x\n   y\nb: >-\n  p\n  q\n", {"a": "x\n y\n", "b": "p q"}),
        ("a: [1, 'b, c', {d: e}]\n", {"a": ["1", "b, c", {"d": "e"}]}),
        ("a: \"x # y\" # z\nb: 'it''s'\nc: d#e\n", {"a": "x # y", "b": "it's", "c": "d#e"}),
        ("a: vllm serve\n  --tp 4\nb:\n", {"a": "vllm serve --tp 4", "b": None}),
        ("a: &x\n  b: c\nd:\n  <<: *x\n  e: f\n", {"a": {"b": "c"}, "d": {"b": "c", "e": "f"}}),
        ("a: http://h:1/p\nb: 10:20\n", {"a": "http://h:1/p", "b": "10:20"}),
        ("a:\n- x\n- y\n", {"a": ["x", "y"]}),
    ],
)
def test_yaml(source: str, value: Any) -> None:
    assert load(source) == value


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab:-# \n'\"[]{}&*|>,!<0", max_size=100))
@example("a: *a\n<<: *b")
@example("- - - a\n  - b")
def test_any_yaml_is_read_or_refused(text: str) -> None:
    for source in (text, "services:\n  x:\n    " + text.replace("\n", "\n    ")):
        try:
            read_compose(source)
        except YamlError:
            continue
