"""The memory plan of one GPU: expert weights, other weights and KV cache apart, from the model's own files.

Weights are counted from the safetensors headers as they lie on the disk. Experts are divided over the EP ranks (else
the TP ranks), the rest over the TP ranks of one attention group, all of it over the pipeline stages; an embedding that
stages do not share is not told apart. KV bytes a token: 2 x KV heads x head size x layers; with latent attention (MLA)
one latent of kv_lora_rank + qk_rope_head_dim a layer, which every TP rank holds whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runners.engines.base import flag_value
from runners.gates.preflight.base import Scope, Verdict
from runners.gates.preflight.gpus import gpu_rows
from runners.spec import Deployment, Topology

GIB = 1 << 30
# Share of a GPU that an engine takes when no flag says it; vLLM 0.9, SGLang's heuristic lies near 0.87.
FRACTION = {"vllm": 0.9, "sglang": 0.87}
_BYTES = {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1, "bf16": 2, "bfloat16": 2, "float16": 2, "half": 2}


@dataclass(frozen=True, slots=True)
class Plan:
    """Bytes of one GPU. `kv_tokens`: what fits into `kv`, None when the model's form is not known."""

    expert: int
    other: int
    kv: int
    kv_bytes_token: float | None
    total: int
    fraction: float

    @property
    def kv_tokens(self) -> int | None:
        return int(self.kv / self.kv_bytes_token) if self.kv_bytes_token and self.kv > 0 else None

    def variables(self) -> dict[str, str]:
        """The plan as manifest variables, beside what the engine then reports (`measured.*`)."""
        told = {
            "expert_weights_bytes": self.expert,
            "other_weights_bytes": self.other,
            "kv_bytes": self.kv,
            "kv_tokens": self.kv_tokens,
        }
        return {f"memory.plan_{name}": str(value) for name, value in told.items() if value is not None}


def plan(weights: Mapping[str, Any], dep: Deployment, gpu_bytes: int) -> Plan:
    """The plan of each GPU, from the answer of weights.sh."""
    sizes = {str(k): int(v) for k, v in weights.get("sizes", {}).items()}
    topo = dep.topology
    expert = sizes.pop("expert", 0) / (topo.pp * (topo.ep if topo.ep > 1 else topo.tp))
    other = sum(sizes.values()) / (topo.pp * _attention_tp(topo))
    fraction = _fraction(dep)
    kv = gpu_bytes * fraction - expert - other
    return Plan(int(expert), int(other), int(kv), _kv_bytes(weights.get("config", {}), dep), gpu_bytes, fraction)


def _attention_tp(topo: Topology) -> int:
    return max(1, topo.tp // topo.dp) if topo.dp_attention else topo.tp


def _fraction(dep: Deployment) -> float:
    said = flag_value(dep.flags, "--gpu-memory-utilization", "--mem-fraction-static")
    try:
        return float(said) if said is not None else FRACTION.get(dep.engine, 0.9)
    except ValueError:
        return FRACTION.get(dep.engine, 0.9)


def _kv_bytes(config: Mapping[str, Any], dep: Deployment) -> float | None:
    """KV bytes of one token on one GPU."""
    asked = flag_value(dep.flags, "--kv-cache-dtype")
    size = _BYTES.get(
        asked if asked not in (None, "auto") else str(config.get("torch_dtype") or config.get("dtype")), 2
    )
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int):
        return None
    if isinstance(latent := config.get("kv_lora_rank"), int):
        rope = config.get("qk_rope_head_dim")
        return (latent + (rope if isinstance(rope, int) else 0)) * layers * size / dep.topology.pp
    heads = config.get("num_key_value_heads") or config.get("num_attention_heads")
    width = config.get("head_dim")
    if width is None and config.get("hidden_size") and config.get("num_attention_heads"):
        width = config["hidden_size"] // config["num_attention_heads"]
    if not isinstance(heads, int) or not isinstance(width, int):
        return None
    return 2 * max(1.0, heads / _attention_tp(dep.topology)) * width * layers * size / dep.topology.pp


def smallest_gpu(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Bytes of the smallest GPU of a node."""
    return min((int(r["mem_total_bytes"]) for r in rows if r.get("mem_total_bytes")), default=None)


def memory(scope: Scope) -> Iterable[Verdict]:
    """Whether the model fits, and how much is left for the KV cache."""
    if scope.dep is None or not scope.first or scope.dep.engine not in ("sglang", "vllm"):
        return [Verdict("memory", "not_applicable", "no weights to place here")]
    weights = scope.seen.weights
    gpu = smallest_gpu(gpu_rows(scope.facts, scope.node.devices.vendor))
    if not weights or not weights.get("tensors"):
        return [Verdict("memory", "unknown", scope.seen.weights_why or "no safetensors headers in the model folder")]
    if gpu is None:
        return [Verdict("memory", "unknown", f"the size of a GPU is not told: {scope.facts.why('gpus')}")]
    made = plan(weights, scope.dep, gpu)
    tokens = made.kv_tokens
    detail = (
        f"each GPU: experts {made.expert / GIB:.1f}, other weights {made.other / GIB:.1f}, KV {made.kv / GIB:.1f} GiB"
        f"{f' ({tokens:,} tokens)' if tokens else ''} of {made.total / GIB:.1f} x {made.fraction:g};"
        " activations and graphs come off the KV part"
    )
    fix = "spread it wider (tp, pp, ep), take a smaller quantisation, or raise the memory fraction"
    if made.kv <= 0:
        return [Verdict("memory", "fail", f"the weights do not fit: {detail}", fix)]
    return [Verdict("memory", "warn" if made.kv < made.total * 0.05 else "pass", detail, fix)]
