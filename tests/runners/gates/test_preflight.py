"""Every preflight check, over a survey taken on a lab node and changed as a fault would change it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.gates.preflight import CHECKS, same
from runners.gates.preflight.base import (
    Facts,
    Reached,
    Scope,
    Seen,
    Verdict,
    ipv4_of_gid,
    parse_facts,
    script,
    usable_gid,
)
from runners.gates.preflight.gather import model_on_node, parse_model, parse_reach
from runners.gates.preflight.gpus import gpu_rows
from runners.spec import Deployment, Node

TEXT = (Path(__file__).parents[2] / "data/preflight/node5.txt").read_text()
RAILS = [{"netdev": "eth0", "hca": "mlx5_0", "gbps": 400}, {"netdev": "eth3", "hca": "mlx5_3", "gbps": 400}]
DEP = Deployment(name="d", engine="sglang", model="/models/m", nodes=["node5", "node7"], port=30000)
BOXED = DEP.model_copy(update={"launcher": "docker", "image": "lab:1"})


def node(name: str) -> Node:
    return Node.model_validate({"name": name, "host": name, "rails": RAILS})


def seen(name: str, text: str = TEXT) -> Seen:
    return Seen(node(name), parse_facts(text))


def scope(text: str = TEXT, dep: Deployment | None = DEP, **living: int) -> Scope:
    one = seen("node5", text)
    return Scope(one, {"node5": one, "node7": seen("node7")}, dep, living)


def verdict(name: str, where: Scope) -> Verdict:
    (found,) = next(c for c in CHECKS if c.name == name).judge(where)
    assert found.name == name
    return found


def changed(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new)


def test_a_healthy_node_has_nothing_to_put_right() -> None:
    found = [verdict(c.name, scope()) for c in CHECKS if not c.across]
    status = {v.name: v.status for v in found}
    assert not [v for v in found if v.status == "fail"]
    assert {n for n, s in status.items() if s == "pass"} >= {
        "disk", "gpu", "gpu_holders", "ports", "p2p", "iommu", "numa_map", "cpu_limits", "kernel", "rails", "profiling"
    }  # fmt: skip
    assert status["acs"] == "unknown"  # lspci is not there: said, not guessed
    assert all(v.fix for v in found if v.status in ("warn", "fail"))


@pytest.mark.parametrize("text", ["", "#none\tgpus\tno", TEXT[: len(TEXT) // 2], "#block\tgpus\n"])
def test_a_node_that_says_little_is_unknown_and_never_a_pass_of_what_was_not_read(text: str) -> None:
    for check in CHECKS:
        for found in check.judge(scope(text)):
            assert found.status in ("pass", "warn", "unknown", "not_applicable", "fail")
            assert found.detail
    if not text:
        of_nodes = [c for c in CHECKS if not c.across and c.name != "secrets"]  # that one reads our own flags
        judged = [v for c in of_nodes for v in c.judge(scope(text, BOXED))]
        assert {v.status for v in judged} <= {"unknown", "not_applicable"}


@settings(max_examples=25)
@given(st.text(max_size=2000))
def test_whatever_a_node_answers_every_check_has_a_verdict(text: str) -> None:
    for check in CHECKS:
        for found in check.judge(scope(text)):
            assert found.status in ("pass", "warn", "fail", "unknown", "not_applicable")


@pytest.mark.parametrize(
    ("check", "text", "status", "said", "fix"),
    [
        ("gpu", changed("7, NVIDIA RTX", "#"), "fail", "7 GPUs answer, 8 expected", "dmesg"),
        ("gpu", changed("97887 MiB, 0 MiB, 0 %", "97887 MiB, 90000 MiB, 100 %"), "warn", "8 with more than 1 GiB", ""),
        ("rails", changed("mlx5_3\tstate\t4: ACTIVE", "mlx5_3\tstate\t1: DOWN"), "fail", "1: DOWN", "ip link set eth3"),
        ("rails", TEXT.replace("#row\thca\tmlx5_3", "#row\thca\tmlx5_2"), "fail", "no such HCA; there: mlx5_0", "="),
        ("rails", changed("mlx5_3\trate\t400", "mlx5_3\trate\t200"), "warn", "200 Gb/sec", "runs at 200 Gb/s"),
        ("rails", TEXT.replace("0000:ffff", "0000:fffe"), "warn", "no RoCE v2 GID with IPv4", "IPv4 address"),
        ("rails", changed("active_mtu:\t\t4096 (5)", "active_mtu:\t\t1024 (3)"), "warn", "RDMA 1024", "mtu 9000"),
        ("iommu", changed("iommu.groups\t0", "iommu.groups\t9\n#row\tpci\t0000:16:00.0\t0x0302\t0\tDMA-FQ"), "warn",
         "translated: 0000:16:00.0", "iommu=pt"),
        ("acs", "acs.read\tyes\n#row\tacs\t15:01.0\tbridge\tSrcValid+ TransBlk- ReqRedir+\nsurvey.end\tyes", "warn",
         "1 of 1 ports", "setpci"),
        ("acs", "acs.read\tyes\n#row\tacs\t15:01.0\tbridge\tSrcValid- ReqRedir-\nsurvey.end\tyes", "pass", "", ""),
        ("p2p", changed("OK", "CNS"), "warn", "56 CNS (chipset not supported)", "NCCL_P2P_DISABLE"),
        ("numa_map", changed("NODE", "SYS"), "warn", "across sockets from every rail: GPU2", "topo -m"),
        ("cpu_limits", TEXT + "#row\tlimit\tcpu.max\t/user.slice\t50000 100000\n", "warn",
         "quota 0.5 CPUs", "CPUQuota"),
        ("kernel", changed("==> kernel/numa_balancing <==\n0", "==> kernel/numa_balancing <==\n1"), "warn",
         "numa_balancing 1", "kernel.numa_balancing=0"),
        ("disk", changed("/srv\t264212084\t", "/srv\t264212084\t9\t"), "fail", "0.0 GiB free", "jobs --reap"),
        ("others", changed("#block\tlogins\n", "#block\tlogins\nalice pts/0 2026-01-01\n"), "warn", "alice", "who"),
        ("profiling", changed("host.uid\t0", "host.uid\t7\n#block\tnvidia_params\nRmProfilingAdminOnly: 1\n#end"),
         "warn", "root only", "NVreg_Restrict"),
        ("ulimits", changed("host.uid\t0", "host.uid\t1000"), "warn", "memlock 8388608", "LimitMEMLOCK"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_figures_and_the_next_step(
    check: str, text: str, status: str, said: str, fix: str
) -> None:
    found = verdict(check, scope(text))
    assert (found.status, said in found.detail, fix in found.fix) == (status, True, True), found


HELD = (
    "#row\tport\t30000\t4711\t0\n#row\tholder\t30000\t812\n"
    "#row\tprocess\t812\tbob\t800\t801 800 \tpython -m sglang.launch_server --port 30000\n"
)
HOLDER = changed(
    "used_gpu_memory [MiB], process_name\n", "used_gpu_memory [MiB], process_name\n812, GPU-1, 9000 MiB, python\n"
)


def test_a_stale_server_on_the_port_is_named_and_ours_is_known_by_its_job() -> None:
    stale = verdict("ports", scope(TEXT + HELD))
    assert stale.status == "fail"
    assert "30000 is held by pid 812 of bob (python -m sglang.launch_server --port 30000)" in stale.detail
    assert "sudo kill 812" in stale.fix
    assert verdict("ports", scope(TEXT + HELD, job=800)).status == "pass"  # leader of the session
    unseen = verdict("ports", scope(TEXT + HELD.split("\n")[0]))
    assert (unseen.status, "ss -ltnp" in unseen.fix) == ("fail", True)


def test_who_holds_gpu_memory_is_named_and_not_counted_when_it_is_our_server() -> None:
    text = HOLDER + HELD
    found = verdict("gpu_holders", scope(text))
    assert (found.status, found.fix) == ("warn", "sudo kill 812")
    assert "pid 812 of bob" in found.detail
    assert "8.8 GiB" in found.detail
    assert verdict("gpu_holders", scope(text, job=800)).status == "pass"


def test_gpus_in_use_are_as_they_should_be_while_our_own_server_is_up() -> None:
    busy = changed("97887 MiB, 0 MiB, 0 %", "97887 MiB, 90000 MiB, 100 %")
    assert verdict("gpu", scope(busy)).status == "warn"
    assert verdict("gpu", scope(busy, job=800)).status == "pass"


def test_containers_of_ours_without_a_job_are_left_over_and_others_are_asked_about() -> None:
    boxes = (
        "#block\tcontainers\naaa|twinrail-x.r0|lab:1|Up 2 hours\nbbb|db|postgres:16|Up 3 days\n#end\n"
        "#block\tcontainer_pids\naaa 812\nbbb 5\n#end\n"
    )
    found = verdict("containers", scope(TEXT + boxes, BOXED))
    assert (found.status, found.fix) == ("warn", "docker rm -f twinrail-x.r0")
    mine = scope(TEXT + boxes, BOXED, **{"x.r0": 0})
    assert "db of postgres:16" in verdict("containers", mine).detail
    assert verdict("ports", scope(TEXT + boxes + HELD, BOXED)).fix.startswith("docker rm -f twinrail-x.r0")
    assert verdict("ports", Scope(seen("node5", TEXT + boxes + HELD), {}, BOXED, {"x.r0": 0})).status == "pass"


def test_a_refusing_container_engine_fails_a_deployment_in_containers_only() -> None:
    text = TEXT + "#none\tcontainers\tdocker ended with 1: permission denied while trying to connect\n"
    found = verdict("container", scope(text, BOXED))
    assert (found.status, "docker group" in found.fix) == ("fail", True)
    assert verdict("container", scope(text)).status == "not_applicable"


def inside(devices: str) -> Facts:
    return parse_facts(
        "".join(f"#row\tdevice\t{d}\n" for d in devices.split()) + "#row\thca\tmlx5_0\tstate\t4\nsurvey.end\tyes"
    )


def test_a_container_without_rdma_devices_fails_over_two_nodes() -> None:
    where = scope(dep=BOXED)
    assert verdict("rails_inside", where).status == "unknown"
    where.seen.inside = inside("/dev/nvidia0")
    found = verdict("rails_inside", where)
    assert (found.status, "NCCL would fall to TCP" in found.detail) == ("fail", True)
    where.seen.inside = inside("/dev/infiniband/uverbs0 /dev/infiniband/uverbs3 /dev/infiniband/rdma_cm")
    assert "but no mlx5_3 in its sysfs" in verdict("rails_inside", where).detail


def reached(*states: str) -> list[Reached]:
    pairs = [("eth0", "eth0"), ("eth0", "eth3"), ("eth3", "eth0"), ("eth3", "eth3")]
    return [Reached(a, "node7", b, "198.19.1.7", s, "9000") for (a, b), s in zip(pairs, states, strict=True)]


@pytest.mark.parametrize(
    ("states", "status", "said"),
    [
        (("ok", "ok", "ok", "ok"), "pass", "eth0>node7:eth3 ok"),
        (("ok", "lost", "lost", "ok"), "pass", "NCCL_CROSS_NIC=0"),
        (("ok", "ok", "ok", "lost"), "fail", "no answer: eth3 to node7"),
        (("ok", "ok", "ok", "silent"), "warn", "no answer: eth3 to node7"),
        (("ok", "ok", "ok", "big_lost"), "warn", "whole frames are lost: eth3"),
        (("unknown",) * 4, "unknown", "9000"),
    ],
)
def test_the_matrix_of_rails_is_judged_rail_by_rail(states: tuple[str, ...], status: str, said: str) -> None:
    where = scope()
    where.seen.reached = reached(*states)
    found = verdict("reach", where)
    assert (found.status, said in found.detail) == (status, True), found


def across(name: str, change: Callable[[str], str], dep: Deployment = DEP) -> Verdict:
    a, b = seen("node5"), seen("node7", change(TEXT))
    return verdict(name, Scope(a, {"node5": a, "node7": b}, dep))


def test_what_differs_between_nodes_is_named_with_both_values() -> None:
    assert across("versions", str).status == "pass"
    driver = across("versions", lambda t: t.replace("580.105.08,", "570.1,"))
    assert (driver.status, "node5 580.105.08, node7 570.1" in driver.detail) == ("warn", True)
    mtu = across("rails_same", lambda t: t.replace("eth3\tmtu\t9000", "eth3\tmtu\t1500"))
    assert (mtu.status, "MTU of eth3: node5 9000, node7 1500" in mtu.detail) == ("warn", True)
    gids = across("rails_same", lambda t: t.replace("gid\tmlx5_3\t3", "gid\tmlx5_3\t5"))
    assert "mlx5_0 3, mlx5_3 5" in gids.detail


def test_images_that_differ_fail_and_a_missing_one_is_unknown() -> None:
    image = "#block\timage\nsha256:{} repo@sha256:1\n#end\n"
    a, b, c = (seen(n, TEXT + image.format(i * 12)) for n, i in (("node5", "a"), ("node7", "b"), ("node7", "a")))
    differ = same.image(Scope(a, {"node5": a, "node7": b}, BOXED))
    assert [(v.status, "node5 aaaaaaaaaaaa, node7 bbbbbbbbbbbb" in v.detail) for v in differ] == [("fail", True)]
    assert [v.status for v in same.image(Scope(a, {"node5": a, "node7": c}, BOXED))] == ["pass"]
    assert [v.status for v in same.image(Scope(a, {"node5": a, "node7": seen("node7")}, BOXED))] == ["unknown"]


def test_model_files_are_compared_by_size_and_content() -> None:
    a, b = seen("node5"), seen("node7")
    where = Scope(a, {"node5": a, "node7": b}, DEP)
    a.model = {"config.json": ("10", "h1"), "w-1.safetensors": ("900", "h2")}
    b.model = dict(a.model)
    assert verdict("model_same", where).status == "pass"
    b.model["w-1.safetensors"] = ("900", "h3")
    found = verdict("model_same", where)
    assert (found.status, found.detail) == ("fail", "w-1.safetensors differs in content")
    b.model["w-1.safetensors"] = ("899", "h3")
    assert "900 bytes on node5, 899 on node7" in verdict("model_same", where).detail
    del b.model["w-1.safetensors"]
    assert "is only on node5" in verdict("model_same", where).detail
    b.model, b.model_why = None, "/models/m is not there, or may not be read"
    assert verdict("model_same", where).status == "fail"


def test_the_usable_gid_is_the_one_of_version_2_with_an_ipv4_address() -> None:
    assert usable_gid(parse_facts(TEXT), "mlx5_3") == (3, "198.19.2.5")
    assert usable_gid(parse_facts(TEXT.replace("gid\tmlx5_3\t3", "gid\tmlx5_3\t7")), "mlx5_3") == (7, "198.19.2.5")
    assert ipv4_of_gid("fe80:0000:0000:0000:a288:c203:007e:0e38") is None
    assert ipv4_of_gid("0000:0000:0000:0000:0000:ffff:zz:1") is None


def test_answers_of_the_other_scripts_are_read_whole_or_refused() -> None:
    whole = "file\ta\t1\th\nfile\tb\t2\ti\nend\t2\n"
    assert parse_model(whole)[0] == {"a": ("1", "h"), "b": ("2", "i")}
    assert parse_model(whole.replace("end", "")) == (None, "the look at the model folder was cut short")
    assert parse_model("none\t/m is not there\n") == (None, "/m is not there")
    assert parse_reach("reach\t0\tok\t9000\nreach\tx\tok\t\nreach\t1\tevil\t\n") == {0: ("ok", "9000")}


def test_a_mounted_model_is_looked_for_where_the_node_has_it() -> None:
    mounted = BOXED.model_copy(update={"mounts": ["/data/big:/models:ro"]})
    assert model_on_node(mounted) == "/data/big/m"
    assert model_on_node(DEP) == "/models/m"


def test_a_driver_that_lacks_a_field_is_asked_again_for_the_basic_ones(tmp_path: Path) -> None:
    """One unknown field kills a whole query of nvidia-smi (facts of its format)."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\ncase $* in\n"
        "*mig.mode*) echo 'Field \"mig.mode.current\" is not a valid field to query.'; exit 2 ;;\n"
        "*query-gpu*) echo 'index, name, uuid'; echo '0, Old GPU, GPU-0' ;; *) exit 9 ;; esac\n"
    )
    tool.chmod(0o755)
    command = ["sh", "-c", script("survey.sh"), "survey", str(tmp_path), "", "nvidia", "", "", "", "", ""]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=90, check=False)
    facts = parse_facts(done.stdout)
    assert facts.complete
    assert [r["name"] for r in gpu_rows(facts, "nvidia")] == ["Old GPU"]
    assert "ended with 9" in facts.missing["topo"]
