"""Kernel families: the shared table of real names, names the table does not hold, and users' own rules."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.analysis.families import (
    FAMILIES,
    FUNCTORS,
    KNOWN_OTHER,
    RULES,
    WHOLE_NAME,
    family_of,
    match,
    read_rules,
)
from tests.store.analysis.builder import DATA

TABLE = [line.split("\t") for line in (DATA / "kernels" / "kernel_names.tsv").read_text("utf-8").splitlines()[1:]]
OTHERS = [line.split("\t") for line in (DATA / "kernels" / "more_names.tsv").read_text("utf-8").splitlines()]
FRESH = [line.split("\t") for line in (DATA / "kernels" / "fresh_names.tsv").read_text("utf-8").splitlines()]
PUBLIC = [line.split("\t") for line in (DATA / "kernels" / "public_names.tsv").read_text("utf-8").splitlines()]


def test_every_name_of_the_shared_table_is_right() -> None:
    wrong = [(name, family, family_of(name)) for name, family in TABLE if family_of(name) != family]
    assert wrong == []


def test_names_that_the_table_does_not_hold_are_right() -> None:
    wrong = [(name, family, family_of(name)) for family, name in OTHERS if family_of(name) != family]
    assert wrong == []


def test_names_from_public_sources_and_traces_are_nearly_all_right() -> None:
    """Names that were labelled by what the kernel does, before any rule was fitted to them; some stay out of reach."""
    wrong = [(name, family, family_of(name)) for family, name in PUBLIC if family_of(name) != family]
    assert len(PUBLIC) > 600
    assert len(wrong) <= 6, wrong


def test_names_of_young_libraries_are_mostly_right() -> None:
    """Kernels of current engines and kernel libraries whose names nothing had shown us, labelled from their sources."""
    wrong = [(name, family, family_of(name)) for family, name in FRESH if family_of(name) != family]
    assert len(FRESH) > 1690
    assert len(wrong) <= 0.05 * len(FRESH), wrong


def test_the_built_in_table_is_written_as_users_write_theirs() -> None:
    lines = (files("store.analysis") / "families.rules").read_text("utf-8").splitlines()
    rules = read_rules(line for line in lines if not line.startswith("["))
    assert rules == WHOLE_NAME + RULES + KNOWN_OTHER + FUNCTORS
    assert len(rules) > 100


@pytest.mark.parametrize(
    ("name", "family"),
    [
        # Inductor names a pointwise kernel after the matrix product before it; the product is another kernel.
        ("triton_poi_fused_addmm_silu_2", "Norm/Activation"),
        ("triton_tem_fused_addmm_2", "GEMM"),
        # `flashinfer` is a namespace, not flash attention.
        ("void flashinfer::sampling::TopPRenormProbKernel<512>(float*)", "Sampling"),
        ("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>", "Norm/Activation"),
        # One kernel, dense or grouped by a template argument.
        ("void deep_gemm::fp8_gemm_kernel<1u, (deep_gemm::GemmType)0>(int)", "GEMM"),
        ("void deep_gemm::fp8_gemm_kernel<1u, (deep_gemm::GemmType)4>(int)", "GEMM"),
        ("void deep_gemm::fp8_gemm_kernel<1u, (deep_gemm::GemmType)1>(int)", "MoE"),
        # top-k is the indexer's, the router's or the sampler's.
        ("void vllm::topKPerRowDecode<1024, true>(int)", "NSA/DSA Indexer"),
        ("void vllm::moe::topkGatingSoftmax<8, 128>(int)", "MoE"),
        ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)", "Sampling"),
        # Names in arguments are other people's.
        ("void vllm::convert_fp8_kernel<c10::BFloat16, (vllm::Fp8KVCacheDataType)1>(int)", "Quantization"),
        # Wrappers are what they are given.
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<x> >(y)", "MLA/Attention"),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<x> >(y)", "GEMM"),
        ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27x", "Norm/Activation"),
        ("GemmaRMSNormKernel", "Norm/Activation"),
    ],
)
def test_the_traps(name: str, family: str) -> None:
    assert family_of(name) == family


def test_an_unknown_name_is_other_and_told_apart_from_a_known_other() -> None:
    assert match("zqxj_unheard_of").rule is None
    assert match("_compute_slot_mapping_kernel").rule is not None
    assert family_of("zqxj_unheard_of") == family_of("_compute_slot_mapping_kernel") == "Other"


def test_a_users_rules_come_first() -> None:
    rules = read_rules(["# ours", "", "MoE\t^my_fused_", "Communication\tring_exchange"])
    assert family_of("my_fused_gemm", rules) == "MoE"
    assert family_of("MY_RING_EXCHANGE_k", rules) == "Communication"
    assert family_of("my_gemm", rules) == "GEMM"


@pytest.mark.parametrize("line", ["MoE my_kernel", "Nonsense\tx", "MoE\t(unclosed"])
def test_a_bad_rule_names_its_line(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        read_rules(["MoE\tx", line])


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_name_has_a_family(name: str) -> None:
    assert family_of(name) in FAMILIES
