"""Differences by kind, and names of models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.analysis.ab.changes import base_model, changes_of, flags_of, variables_of

names = st.sampled_from(["host.kernel", "host.boot_id", "flags.--chunk", "server.chunk", "server.kv_tokens", "env.X"])
environments = st.dictionaries(names, st.sampled_from(["1", "2", "3"]))


def kinds(a: dict[str, str], b: dict[str, str], *declared: str) -> dict[str, str]:
    return {c.name: c.kind for c in changes_of(a, b, declared)}


def test_what_follows_from_a_declared_flag_is_derived_and_what_does_not_is_undeclared() -> None:
    flag, names = "--chunked-prefill-size", ("chunked_prefill_size", "max_total_num_tokens", "attention_backend")
    a, b = (
        {f"flags.{flag}": size, **dict(zip((f"server.{n}" for n in names), (size, tokens, backend), strict=True))}
        | {"host.boot_id": boot}
        for size, tokens, backend, boot in (("2048", "9", "fa3", "x"), ("4096", "8", "triton", "y"))
    )
    assert kinds(a, b, "flags.--chunked-prefill-size") == {
        "flags.--chunked-prefill-size": "intended",
        "server.chunked_prefill_size": "derived",
        "server.max_total_num_tokens": "derived",
        "server.attention_backend": "undeclared",
        "host.boot_id": "noise",
    }


def test_an_image_brings_its_packages_along() -> None:
    a = {"deployment.image": "v1", "package.torch": "2.8", "server.version": "0.5", "host.kernel": "6.1"}
    b = {"deployment.image": "v2", "package.torch": "2.9", "server.version": "0.6", "host.kernel": "6.2"}
    found = kinds(a, b, "image")
    assert found == {
        "deployment.image": "intended",
        "package.torch": "derived",
        "server.version": "derived",
        "host.kernel": "undeclared",
    }


def test_without_a_declaration_nothing_is_derived() -> None:
    assert kinds({"server.kv_tokens": "1"}, {"server.kv_tokens": "2"}) == {"server.kv_tokens": "undeclared"}


def test_a_bundle_is_declared_by_a_pattern() -> None:
    a, b = {"deployment.topology.tp": "16", "deployment.topology.pp": "1"}, {"deployment.topology.tp": "8"}
    assert set(kinds(a, b, "topology.*").values()) == {"intended"}


def test_a_variable_that_one_side_lacks_differs() -> None:
    (change,) = changes_of({"env.NCCL_ALGO": "Ring"}, {}, [])
    assert (change.a, change.b, change.kind) == ("Ring", None, "undeclared")


@given(environments, environments, st.lists(names, max_size=2))
def test_every_difference_has_one_kind_and_equal_variables_none(
    a: dict[str, str], b: dict[str, str], declared: list[str]
) -> None:
    found = changes_of(a, b, declared)
    assert sorted(c.name for c in found) == sorted(n for n in a.keys() | b.keys() if a.get(n) != b.get(n))
    assert {c.name for c in found if c.kind == "intended"} <= set(declared)
    assert changes_of(a, a, declared) == []


def test_flags_are_variables_one_by_one() -> None:
    assert flags_of("--a 1 --b --c=x --d 1 2 --e -1 --f 'two words'") == {
        "--a": "1", "--b": "on", "--c": "x", "--d": "1 2", "--e": "-1", "--f": "two words"
    }  # fmt: skip
    assert flags_of("--broken 'quote") == {"--broken": "'quote"}


def test_nodes_are_told_apart_only_where_they_differ() -> None:
    rows = [
        {"name": "host.kernel", "node": "n1", "rank": None, "value": "6.1"},
        {"name": "host.kernel", "node": "n2", "rank": None, "value": "6.1"},
        {"name": "limits.memlock", "node": "n1", "rank": None, "value": "64"},
        {"name": "limits.memlock", "node": "n2", "rank": None, "value": "unlimited"},
    ]
    assert variables_of(rows) == {"host.kernel": "6.1", "limits.memlock": "n1: 64, n2: unlimited"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("deepseek-ai/DeepSeek-V3.2", "/models/DeepSeek-V3.2-W8A8/", True),
        ("Qwen3-32B-FP8", "qwen3-32b-awq", True),
        ("Qwen3-32B", "Qwen3-235B-A22B", False),
        ("Llama-3.1-8B-Instruct", "Llama-3.1-8B", False),
        ("Kimi-K2-Instruct-NVFP4", "Kimi-K2-Instruct", True),
    ],
)
def test_quantisations_of_one_model_share_its_base(one: str, other: str, same: bool) -> None:
    assert (base_model(one) == base_model(other)) is same
