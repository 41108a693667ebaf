"""The manifest: what was asked, what nodes and server report, what the log says was chosen; secrets in none of it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from runners.engines.logged import chosen, engine_config
from runners.flows import described, manifest
from runners.gates.preflight.base import Facts, Seen, parse_facts
from runners.spec import Deployment, Node
from store.database import Store
from store.queries import call
from store.records import Job, Life, LogEvent, LogLine, Run, Variable

SURVEY = Path(__file__).parents[1] / "data/preflight/node5.txt"
TOKEN = "hf_0123456789abcdefghijklmn"
NODE = Node.model_validate({"name": "node5", "host": "h", "rails": [{"netdev": "eth0", "hca": "mlx5_0"}]})


def values(rows: list[Variable], node: str | None = "node5") -> dict[str, str | None]:
    return {r.name: r.value for r in rows if r.node == node}


def seen() -> Seen:
    one = Seen(NODE, parse_facts(SURVEY.read_text()))
    one.inside = parse_facts("#row\tpackage\tvllm\t0.18.1\n#row\tpackage\tvllm.commit\tabc\nsurvey.end\tyes\n")
    one.model = {"config.json": ("10", "h1"), "w-1.safetensors": ("900", "h2")}
    return one


def test_a_node_tells_its_hardware_settings_packages_and_state_before_the_run() -> None:
    told = values(manifest.of_seen("r", {"node5": seen()}))
    wanted = {
        "gpu.0.driver": "580.105.08",
        "gpu.7.name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "gpu.cuda": "13.0",
        "rail.mlx5_0.state": "4: ACTIVE",
        "rail.mlx5_0.gid_index": "3",
        "rail.mlx5_0.mtu": "9000",
        "host.kernel": "6.8.0-48-generic",
        "limits.nofile": "20000",
        "sysctl.kernel.numa_balancing": "0",
        "affinity.cpus": "0-1",
        "package.vllm": "0.18.1",
        "package.vllm.commit": "abc",
        "model.files": "2",
        "model.bytes": "910",
        "before.net.eth0": "mtu=9000 speed=10000 operstate=up",
    }
    assert {name: told.get(name) for name in wanted} == wanted
    assert "NVIDIA-SMI 580.105.08" in (told["before.gpus"] or "")
    assert "GPU1=NODE" in (told["gpu.topology.GPU0"] or "")
    assert not [n for n in told if n in ("host.load", "host.uptime") or "mem_used" in n]  # of the moment only


def test_secrets_of_env_flags_and_urls_are_masked_in_every_variable() -> None:
    dep = Deployment(
        name="d",
        engine="vllm",
        nodes=["node5"],
        model="m",
        env={"HF_TOKEN": TOKEN, "PROXY": f"http://bob:{TOKEN}@198.51.100.1:3128"},
        flags=["--api-key", "sk-abcdefghijklmnopqrstuvwx", "--served-model-name", "m", f"--hf-token={TOKEN}"],
    )
    rows = manifest.asked("r", dep, [NODE])
    life = Life(life_id="l", deployment="d", run_id="r")
    rows += described.of_server(life, {"server_args": {"api_key": "sk-abcdefghijklmnopqrstuvwx", "x": TOKEN}}, "node5")
    text = " ".join(f"{r.name}={r.value}" for r in rows)
    assert TOKEN not in text
    assert "sk-abcdef" not in text
    assert "env.HF_TOKEN=***" in text
    assert "--served-model-name m" in text
    counted = manifest.of_values(
        life, {"measured.context_tokens": 8192, "env.API_TOKENS": "a,b"}, "node5", None, "measured"
    )
    assert [r.value for r in counted] == ["8192", "***"]


LINES = [
    "(EngineCore pid=9) INFO [cuda.py:1] Using FLASHMLA_SPARSE attention backend out of potential backends: []",
    "INFO 11-29 20:00:00 [fp8.py:2] Using 'DEEPGEMM' Fp8 MoE backend",
    "INFO 11-29 20:00:00 [utils.py:3] vLLM is using nccl==2.27.5",
    "host:1:1 [0] NCCL INFO NCCL version 2.28.3+cuda13.0",
    "INFO 11-29 [x.py:1] Chunked prefill is enabled with max_num_batched_tokens=8192.",
    "WARNING 11-29 [x.py:1] Custom allreduce is disabled because it is not supported on more than two PCIe-only GPUs",
    "[2026-11-29 20:00:00 TP0] Attention backend not explicitly specified. Use flashinfer backend by default.",
    "[2026-11-29 20:00:00 TP0] Using FP8 indexer cache for Lightning Indexer.",
    "INFO [x.py:1] Using FlashInfer kernel for something new, warmed up in 3.25 s",
    "INFO [x.py:1] Using FlashInfer kernel for something new, warmed up in 4.75 s",
    "nothing to see here",
]


def test_what_the_log_says_was_chosen_is_named_part_by_part() -> None:
    found = chosen(LINES)
    assert found["backend.attention"] == ["FLASHMLA_SPARSE", "flashinfer"]
    assert found["backend.moe"] == ["DEEPGEMM"]
    assert found["nccl.loaded"] == ["2.27.5", "2.28.3+cuda13.0"]
    assert found["engine.chunked_prefill"] == ["enabled with max_num_batched_tokens=8192"]
    assert found["backend.all_reduce"][0].startswith("Custom allreduce is disabled because")
    assert found["backend.indexer"][0].startswith("FP8 indexer cache")
    assert found["engine.said"] == ["Using FlashInfer kernel for something new, warmed up in # s"]  # once, no figure


def test_the_engines_own_statement_is_split_at_its_top_level() -> None:
    line = (
        "INFO [core.py:1] Initializing a V1 LLM engine (v0.18.1) with config: model='/m', dtype=torch.bfloat16, "
        "kv_cache_dtype=fp8, compilation_config={'level': 3, 'x': [1, 2]}, pooler=P(a=1, b='c,d'), seed=0"
    )
    assert engine_config([line]) == {
        "version": "0.18.1",
        "model": "/m",
        "dtype": "torch.bfloat16",
        "kv_cache_dtype": "fp8",
        "compilation_config": "{'level': 3, 'x': [1, 2]}",
        "pooler": "P(a=1, b='c,d')",
        "seed": "0",
    }


@settings(max_examples=25)
@given(st.lists(st.text(max_size=300), max_size=5))
def test_no_line_breaks_the_reading(lines: list[str]) -> None:
    chosen(lines)
    engine_config([f"Initializing a V1 LLM engine (v1) with config: {line}" for line in lines])
    list(manifest.snapshot_values(Facts(blocks={"nvidia_smi": lines, "addresses": lines})))


def test_a_life_is_described_from_its_log_and_two_runs_can_be_compared(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        for run, backend, kv in (("a", "FLASH_ATTN", 1000), ("b", "FLASHINFER", 900)):
            life = Life(life_id=f"{run}.L1", run_id=run, deployment="d")
            job = Job(job_id=f"{run}.r0", life_id=life.life_id, node="node5", kind="server", folder="/", rank=0)
            text = f"INFO 11-29 20:00:00 [cuda.py:1] Using {backend} attention backend out of potential backends: []"
            detail = f'{{"stage": "kv_cache", "kv_tokens": {kv}, "kv_bytes": 5}}'
            log = LogLine(run_id=run, job_id=job.job_id, node="node5", offset=0, wall_ns=1, text=text)
            event = LogEvent(
                run_id=run,
                job_id=job.job_id,
                node="node5",
                rank=3,
                offset=0,
                wall_ns=1,
                name="start_stage",
                detail=detail,
            )
            store.write([Run(run_id=run, kind="run"), life, job, log, event]).result()
            told = described.of_log(store, life) + described.of_memory(store, life)
            assert values(told)["backend.attention"] == backend
            assert [(r.rank, r.value) for r in told if r.name == "measured.kv_tokens"] == [(3, str(kv))]
            store.write(told).result()
        rows = store.query(call("manifest_diff", "a", "b")).dicts()
        found = [(r["name"], r["a"], r["b"]) for r in rows]
        assert found == [("backend.attention", "FLASH_ATTN", "FLASHINFER"), ("measured.kv_tokens", "1000", "900")]
