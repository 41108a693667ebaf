"""Kubernetes manifests become the deployment that their pods start; what has no place is listed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.importing import toml_of
from runners.importing.files import import_files
from runners.importing.kubernetes import read_kubernetes
from runners.importing.yaml_subset import YamlError
from runners.spec import Deployment

DATA = Path(__file__).parents[2] / "data" / "launch"
GROUP = (DATA / "n1-leader-worker-set.yaml").read_text()

POD = """
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  containers:
  - name: main
    image: vllm/vllm-openai:v0.12.0
    args: [--model, /m, "--tensor-parallel-size=$(TP)", "$$(NOT)"]
    env:
    - {name: TP, value: "8"}
    resources: {limits: {nvidia.com/gpu: 8, memory: 900Gi}}
"""


def texts(found: dict[str, Any]) -> list[str]:
    return [item["text"] for item in found["unplaced"]]


def test_a_leader_and_its_workers_are_the_ranks_of_one_deployment() -> None:
    found = import_files([DATA / "n1-leader-worker-set.yaml"])
    first, second = found["commands"]
    assert [first["node_rank"], second["node_rank"]] == [0, 1]
    assert first["argv"][-4:] == ["--host", "0.0.0.0", "--port", "40000"]
    assert second["argv"][-4:] == ["--nnodes", "2", "--node-rank", "1"]
    assert first["env"] == {"NCCL_IB_GID_INDEX": "3", "NCCL_IB_HCA": "^mlx5_0", "HF_TOKEN": "$HF_TOKEN"}
    made = found["deployment"]
    assert made["env"] == {"NCCL_IB_GID_INDEX": "3"}
    assert made["mounts"] == ["/data/models:/models:ro", "/dev/infiniband:/dev/infiniband"]
    assert made["unresolved"] == ["$(LWS_LEADER_ADDRESS):20000", "$HF_TOKEN"]
    assert ["--gpus", "8"] in first["container"]["options"]


def test_what_a_manifest_says_beyond_a_deployment_is_listed() -> None:
    told = texts(import_files([DATA / "n1-leader-worker-set.yaml"]))
    assert "rdma/hca: 1" in told
    for words in ("readinessProbe:", "dnsPolicy:", "restartPolicy:", "kind: Service", "labels: {team: infer}"):
        assert any(words in text for text in told), words
    assert not any("nvidia.com/gpu" in text or "hostPath" in text for text in told)


def test_pods_of_a_stateful_set_know_their_number_and_scripts_of_config_maps_are_followed() -> None:
    found = import_files([DATA / "n2-stateful-set.yaml"])
    assert [item["node_rank"] for item in found["commands"]] == [0, 1]
    assert found["commands"][1]["argv"][-2:] == ["--port", "30000"]
    assert "HOSTNAME" not in found["commands"][1]["env"]
    assert found["deployment"]["env"] == {"MODEL": "/models/x", "NCCL_DEBUG": "INFO"}
    assert not any("start.sh" in text for text in texts(found))
    assert any("persistentVolumeClaim" in text for text in texts(found))


def test_an_image_that_starts_its_engine_and_references_to_variables(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    found = import_files([tmp_path / "pod.yaml"])
    assert found["commands"][0]["argv"] == ["--model", "/m", "--tensor-parallel-size=8", "$(NOT)"]
    assert found["deployment"]["topology"] == {"tp": 8}
    assert ["--gpus", "8"] in found["commands"][0]["container"]["options"]


@pytest.mark.parametrize("name", ["n1-leader-worker-set.yaml", "h-docker-bash.sh", "b-vllm-docker.sh", "f-compose.yml"])
def test_the_table_is_one_that_the_configuration_takes(name: str) -> None:
    made = import_files([DATA / name])["deployment"]
    (table,) = tomllib.loads(toml_of(made))["deployments"].values()
    taken = Deployment.model_validate(table)
    assert taken.mounts == made["mounts"]
    options = dict(made["container"]["options"])
    assert taken.shm_size == options.get("--shm-size")
    assert not any(flag.startswith(("--name", "--gpus", "--network")) for flag in taken.container_flags)


def test_associative_arrays_name_the_hosts_and_ranks() -> None:
    found = import_files([DATA / "m13-associative-arrays.sh"])
    assert found["deployment"]["nodes"] == ["node-a", "node-b"]
    assert [item["node_rank"] for item in found["commands"]] == [0, 1]
    assert found["commands"][1]["env"] == {"VLLM_HOST_IP": "192.0.2.11"}
    assert found["unplaced"] == []


def test_variables_behind_sudo_are_the_servers() -> None:
    (command,) = import_files([DATA / "m14-sudo-variables.sh"])["commands"]
    assert command["env"] == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert command["wrapper"] == ["sudo", "-u", "svc", "-H", "--preserve-env=CUDA_VISIBLE_DEVICES"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(GROUP)), st.integers(0, 60), st.text(max_size=30))
def test_a_damaged_manifest_is_read_or_refused(at: int, length: int, junk: str) -> None:
    try:
        script = read_kubernetes(GROUP[:at] + junk + GROUP[at + length :])
    except YamlError:
        return
    assert all(isinstance(item["text"], str) for item in script.unplaced)
