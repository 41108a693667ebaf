"""Flags against an engine's own help, and the memory plan from a model's own files."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runners.gates.preflight import flags, memory
from runners.gates.preflight.base import Scope, Seen, Verdict, parse_facts, script
from runners.spec import Deployment, Node, Topology

# As argparse and vLLM's --help=all print it.
HELP = """usage: vllm serve [model_tag] [options]

  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE
                        Number of tensor parallel groups. See --no-such-flag for more.
  --max-model-len MAX_MODEL_LEN
  --enable-chunked-prefill, --no-enable-chunked-prefill
  --compilation-config, -cc
  --kv-cache-dtype {auto,fp8}
  --gpu-memory-utilization GPU_MEMORY_UTILIZATION
  --enforce-eager
  --max-num-seqs MAX_NUM_SEQS
  --max-num-batched-tokens N
  --port PORT
"""
NODE = Node.model_validate({"name": "node5", "host": "h"})
GPU = 96 << 30


def scope(dep: Deployment, help_text: str | None = HELP, weights: dict[str, Any] | None = None) -> Scope:
    gpus = "index, name, uuid, memory.total [MiB]\n" + "\n".join(
        f"{n}, RTX, GPU-{n}, {GPU >> 20} MiB" for n in range(8)
    )
    one = Seen(NODE, parse_facts(f"#block\tgpus\n{gpus}\n#end\nsurvey.end\tyes\n"))
    one.help_text, one.weights = help_text, weights
    return Scope(one, {"node5": one}, dep)


def dep(*words: str, **more: Any) -> Deployment:
    return Deployment.model_validate(
        {"name": "d", "engine": "vllm", "nodes": ["node5"], "model": "/m", "flags": words, **more}
    )


def judged(check: Any, where: Scope) -> Verdict:
    (found,) = check(where)
    assert isinstance(found, Verdict)
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("--max-model-len", "8192"),
        ("--max_model_len=8192",),
        ("--compilation-config.level", "3"),
        ("--no-enable-chunked-prefill",),
        ("--enforce",),  # an abbreviation that fits one flag only
        ("-tp", "8"),
    ],
)
def test_flags_in_every_form_that_the_engine_takes_pass(words: tuple[str, ...]) -> None:
    assert judged(flags.flags, scope(dep(*words))).status == "pass"


def test_a_flag_that_this_version_lacks_is_named_with_the_nearest() -> None:
    found = judged(flags.flags, scope(dep("--max-model-length", "1", "--port", "1", "--attention-backend", "X")))
    assert found.status == "fail"
    assert found.detail.endswith("does not know --max-model-length, --attention-backend")
    assert "did you mean --max-model-len" in found.fix
    assert judged(flags.flags, scope(dep("--max-num"))).status == "fail"  # fits two
    assert judged(flags.flags, scope(dep("--no-such-flag"))).status == "fail"  # only spoken of


def test_without_help_nothing_is_claimed() -> None:
    assert judged(flags.flags, scope(dep("--x"), None)).status == "unknown"
    assert judged(flags.flags, scope(dep())).status == "not_applicable"


def weights(**sizes: int) -> dict[str, Any]:
    config = {"num_hidden_layers": 60, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "torch_dtype": "bfloat16"}
    return {"sizes": {k: v << 30 for k, v in sizes.items()}, "tensors": 10, "config": config}


@pytest.mark.parametrize(
    ("topology", "expert", "other"),
    [
        (Topology(tp=16), 40, 4),
        (Topology(tp=8, pp=2), 40, 4),  # W/16 as well
        (Topology(tp=16, dp=2, ep=16, dp_attention=True), 40, 8),  # attention is held twice
        (Topology(tp=8), 80, 8),
    ],
)
def test_the_plan_keeps_experts_others_and_kv_apart(topology: Topology, expert: int, other: int) -> None:
    made = memory.plan(weights(expert=640, attention=48, embed=16), dep(topology=topology.model_dump()), GPU)
    assert (made.expert >> 30, made.other >> 30) == (expert, other)
    assert made.kv == int(GPU * 0.9 - (expert << 30) - (other << 30))
    assert made.kv_bytes_token == (512 + 64) * 60 * 2 / topology.pp


def test_kv_of_grouped_heads_is_divided_until_a_rank_holds_one() -> None:
    config = {"num_hidden_layers": 10, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 8192}
    for tp, heads in ((4, 2), (8, 1), (16, 1)):
        made = memory.plan({"sizes": {}, "config": config}, dep("--kv-cache-dtype", "fp8", topology={"tp": tp}), GPU)
        assert made.kv_bytes_token == 2 * heads * 128 * 10


def test_a_model_that_does_not_fit_fails_before_it_is_loaded() -> None:
    fits = judged(memory.memory, scope(dep(topology={"tp": 16}), weights=weights(expert=640, attention=64)))
    assert fits.status == "pass"
    assert "experts 40.0, other weights 4.0, KV 42.4 GiB" in fits.detail
    big = judged(memory.memory, scope(dep(topology={"tp": 8}), weights=weights(expert=640, attention=64)))
    assert (big.status, "do not fit" in big.detail) == ("fail", True)
    assert judged(memory.memory, scope(dep())).status == "unknown"
    low = dep("--gpu-memory-utilization=0.5", topology={"tp": 16})
    assert judged(memory.memory, scope(low, weights=weights(expert=640, attention=64))).status == "warn"


def test_headers_of_safetensors_are_counted_by_kind_and_a_broken_file_is_not_read(tmp_path: Path) -> None:
    tensors = {
        "model.layers.0.mlp.experts.3.up_proj.weight": 100,
        "model.layers.0.self_attn.q_proj.weight": 20,
        "model.layers.0.mlp.shared_experts.up_proj.weight": 7,
        "model.embed_tokens.weight": 5,
    }
    header: dict[str, Any] = {"__metadata__": {}}
    at = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "I8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(at))
    (tmp_path / "b.safetensors").write_bytes(b"\xff" * 9)
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 3, "secret": "x"}')
    command = ["sh", "-c", script("weights.sh"), "inside", sys.executable, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(done.stdout.removeprefix("weights\t"))
    assert found == {
        "sizes": {"expert": 100, "attention": 20, "other": 7, "embed": 5},
        "tensors": 4,
        "unread": 1,
        "config": {"num_hidden_layers": 3},
    }


def test_help_is_asked_in_the_newer_form_first(tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\n[ "$2" = --help ] || exit 2\necho "  --port PORT"\n')
    program.chmod(0o755)
    command = ["sh", "-c", script("help.sh"), "inside", "python3", str(program), "serve", "--help=all"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert parse_facts(done.stdout).blocks == {"help": ["  --port PORT"]}
    program.write_text("#!/bin/sh\nexit 3\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "ended with 3" in parse_facts(done.stdout).missing["help"]


def test_a_secret_flag_that_everybody_could_read_is_named_and_vllms_key_is_moved() -> None:
    assert judged(flags.secrets, scope(dep("--api-key", "sk-1"))).status == "pass"
    found = judged(flags.secrets, scope(dep("--api-key=sk-1", "--max-tokens", "9", engine="sglang")))
    assert (found.status, found.detail.endswith(": --api-key")) == ("warn", True)
    assert "sk-1" not in found.detail + found.fix
