"""Kernel families: which part of a model a device kernel belongs to, judged by its name.

`RULES` is an ordered table, first match wins, tried on the kernel's own name (without namespace and template
arguments), then on its qualified name, and on everything in it only where the own name is a mere wrapper such as
`cutlass::device_kernel` or `elementwise_kernel`: template arguments name other people's namespaces.
Policy: fused norm/activation + quantisation is Norm/Activation; rotary embedding, KV-cache writes and linear attention
are MLA/Attention; router, gating, sorting, grouped GEMM and finalising are MoE; dispatch and combine across ranks, and
all-reduce fused with anything, are Communication; slot mapping, metadata and plain arithmetic are Other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

COMMUNICATION: Final = "Communication"
GEMM: Final = "GEMM"
ATTENTION: Final = "MLA/Attention"
MEMORY: Final = "Memory/Copy"
MOE: Final = "MoE"
INDEXER: Final = "NSA/DSA Indexer"
NORM: Final = "Norm/Activation"
OTHER: Final = "Other"
QUANTIZATION: Final = "Quantization"
SAMPLING: Final = "Sampling"

FAMILIES: Final = (COMMUNICATION, GEMM, ATTENTION, MOE, INDEXER, NORM, QUANTIZATION, SAMPLING, MEMORY, OTHER)


@dataclass(frozen=True)
class Rule:
    """family: one of FAMILIES. pattern: case-insensitive, searched in the lower-cased name."""

    family: str
    pattern: re.Pattern[str]


def _rules(*table: tuple[str, str]) -> tuple[Rule, ...]:
    return tuple(Rule(family, re.compile(pattern)) for family, pattern in table)


WHOLE_NAME: Final = _rules(
    # What must be seen anywhere in the name, arguments included, before anything else.
    (MEMORY, r"^mem(?:cpy|set) |^\[(?:cuda|hip) mem|^memory_copy|^memcpy(?:peer)?(?:async)?$|rocclr_(?:copy|fill)"),
    (
        COMMUNICATION,
        r"deep_?ep::|\bep::(?:inter|intra)node|::ep::|hybrid_ep|mscclpp|nvshmem|rocshmem|trtllm_(?:mnnvl_)?all",
    ),
    (COMMUNICATION, r"mori::(?:moe|collective|shmem)::"),
    (MOE, r"gemmtype\)[12356]\b|gemmtypee[12356]e|groupproblemshape|grouped_?gemm_?(?:kernel|contig|mask)|marlin_moe"),
)
"""Rules for the whole text of a name."""

RULES: Final = _rules(
    # -- communication: libraries by prefix, custom collectives by what they do
    (
        COMMUNICATION,
        r"(?:n|r|h|m|c|x|onec|bk|ixc|ms|uc|k)ccl(?:$|[^a-z]|dev|kernel|sym|generic|all|send|broadcast|reduce|ker)",
    ),
    (
        COMMUNICATION,
        r"^[a-z]{1,4}ccl|^hcom_|hccl|cncl|mscclpp|nvshmem|rocshmem|ishmem|oneccl|flagcx|userbuffers|(?<![a-z])nvls|mnnvl|lamport",
    ),
    (
        COMMUNICATION,
        r"all_?reduce|all_?gather(?!_matmul_indices)|reduce_?scatter|all_?to_?all|all2all|(?<![a-z])a2a|moea2a",
    ),
    (
        COMMUNICATION,
        r"cross_?device|local_device_load|quick_?reduce|multimem|(?:one|two)_?shot_(?!sort)|symm_?mem|send_?recv",
    ),
    (
        COMMUNICATION,
        r"(?:inter|intra)_?node|notify_(?:dispatch|combine)|get_dispatch_layout|low_latency_(?:buffer|dispatch|combine)",
    ),
    (
        COMMUNICATION,
        r"ep_?(?:dispatch|combine)|distribute_?(?:dispatch|combine)|dispatch_?ffn|broadcast_?aicpu|moe_?(?:comm|dispatch_comm)|(?:put|wait|get)_signal",
    ),
    (
        COMMUNICATION,
        r"barrier_?(?:kernel|all)|(?<![a-z])ar_(?:fusion|residual|rms|ll|sum)|(?<![a-z])(?:ag|ar|rs)_gfx|simple_pu(?:ll|sh)|remote_pu(?:ll|sh)|combine_reduce|(?<![a-z])rs_?ag(?:\d|_)|broadcast_kernel_p2p|^p2p_|moe_?all_?reduce",
    ),
    # -- the sparse attention's index, before attention and top-k
    (
        INDEXER,
        r"mqa_?logits|indexer|lightning_?index|top_?k_?per_?row|clean_?logits|convert_req_index|topk_?transform|fp8_index",
    ),
    (
        INDEXER,
        r"get_k_and_s|fast_?topk|(?:persistent|large_context|radix)_topk(?!_topp)|topk_indices_(?:to|offset)|sparse_index",
    ),
    (
        INDEXER,
        r"index_?(?:score|q_|k_)(?!elect)|(?:nsa|dsa)_(?:\w*logits|\w*topk|radix|index|select)|top_?k_?(?:swa_?)?indices",
    ),
    # -- moving KV blocks is copying; writing new ones is attention
    (ATTENTION, r"dest_?ind(?:ex|ices)_\w*kv"),
    (
        MEMORY,
        r"copy_(?:blocks|all|page|kv)|swap_blocks|transfer_kv|kv_trans(?!pose)|sample_kv|transfer_kernel|gather_(?:and_maybe_dequant_)?cache",
    ),
    (MEMORY, r"(?:dequant\w*_and_)?gather_k(?:v)?_"),
    # -- what only prepares indices
    (
        OTHER,
        r"slot_mapping|attn_metadata|page_table|req_to_token|block_(?:table|meta)|to_ragged|window_info|gather_lens|attention\w*metadata|compute_position|clamp_position|seq_?lens?_",
    ),
    (
        OTHER,
        r"(?:alloc|assign)_(?:extend|decode|draft|req)|last_loc|token_ids|prepare_(?:input|pos|prefill_input|eagle)|input_ids|next_token_ids",
    ),
    # -- linear attention, whose gates are no router's
    (ATTENTION, r"delta_rule|gated_delta|gdn|(?<![a-z])gdr_|gdrkernel|qkvz(?!\w*(?:cat|split))|(?<![a-z])ssu(?![a-z])"),
    # -- mixture of experts
    (
        MOE,
        r"moe(?!ga(?:\d|_|$))|expert|router|routing|gating|grouped_?topk|top_?k_?(?:softmax|sigmoid|softplus)|(?:softmax|sigmoid|softplus)_(?:bias_)?top_?k|group_?idx_and_topk|noaux_?tc|v3_topk",
    ),
    (
        MOE,
        r"grouped_?(?:gemm|mm|matmul)|group_?gemm|(?<![a-z])t?gmm(?![a-z])|gemm_?grouped|m_?grouped|ep_(?:scatter|gather)|matmul_ogs|bitmatrix|^_topk_(?:forward|backward)|topk_(?:ids|idx|weights)",
    ),
    (
        MOE,
        r"^bmm_|(?:pre|post)_reorder|expandinputrows|finalize_(?:matmul|kernelvec)|silu_and_mul_(?:masked_)?post_quant|shuffle_rows|source_?row|sparse_?mixer|sorted_(?:idx|token)",
    ),
    (
        MOE,
        r"compute_(?:problem_sizes|seg_indptr|src2dst|m_range|strides)|apply_shuffle|align_block_size|reduce_fused_impl|_expt_",
    ),
    (
        MOE,
        r"do(?:gated)?activationkernel|topk_with_k2|tokens_per_|masked_m_|token_?(?:un)?permut|permute_(?:tokens|copy)",
    ),
    # -- attention, rotary embedding, KV cache, linear attention and state space models
    (
        ATTENTION,
        r"flash(?!infer)|fmha|attn|attention|(?<![a-z])mla|mla_|mla(?=decode|prefill|kernel|reduce|v\d)|(?<![a-z])[mgx]qa(?![a-z])",
    ),
    (
        ATTENTION,
        r"rope(?!r)|rotary|(?:kv|paged|k|v)_?cache|(?:reshape|concat)_?(?:and_?)?cache|kn_entry|(?<!de)compress(?!ed_tensors)|kv_?(?:indices|buffer|insert|compress|store)",
    ),
    (
        ATTENTION,
        r"(?:prefill|decode)with(?:paged|ragged)|(?:^|_)att\d?_|token_(?:att|softmax)|bwd_d[qk]|dk_?dv|merge_?states?|(?<![a-z])m?mha(?![a-z])|sdpa|(?:^|_)pa_|splitkv|reduce_segments",
    ),
    (
        ATTENTION,
        r"^_fwd_(?:grouped_)?kernel(?:_stage|_unified|_no_prompt|_alibi|$)|context_fwd|^_(?:bwd|attn_fwd|attn_bwd)_kernel|global_slots|softmax_?lse|cascade",
    ),
    (
        ATTENTION,
        r"(?<![a-z])kda|recurrent|chunk_?(?:fwd|scan|state|(?:gate_)?cumsum|local|scaled|kda|bwd|o)|state_(?:passing|scan)",
    ),
    (
        ATTENTION,
        r"selective_(?:scan|state)|mamba|(?<![a-z])ss[dm]_|causal_conv|conv1d|lightning_att|linear_att|(?<![a-z])gla_|retention|rwkv|token_shift|based_(?:fwd|bwd)|deltaformer|dh0",
    ),
    (
        ATTENTION,
        r"solve_tril|cumsum_kkt|(?:non)?causal(?!_conv)(?:_|$)|sparse_(?:prefill|decode)|paged_?kv|mla_?cache|merge_\d+x\d+|(?:initial|final|recurrent)_state|(?<![a-z])[kv]_update_|chunk(?:wise|ed)?_\w*(?:fwd|bwd)|recompute_w_u|wy_(?:repr|fast)|bmm_chunk|(?<![a-z])(?:set|store|write|append|save)_(?:mla_)?kv",
    ),
    # -- sampling that would look like a norm or a GEMM by name
    (
        SAMPLING,
        r"(?<!up)(?<!down)(?<!grid_)(?<!re)sampl(?!ed_from_grid)|top_?k_?top_?p|top_?[kp]_?(?:renorm|mask)|renorm_?prob|penalt",
    ),
    (
        SAMPLING,
        r"arg_?max|multinomial|top_p_|mask_logits|ngram|rejection|logprob|build_tree|token_?bitmask|min_?p_|logits?_?(?:bias|process|soft|to|cap)|temperature|gumbel|speculative|verify_?(?:tree|chain)",
    ),
    # -- dense matrix products, after what only prepares their weights
    (QUANTIZATION, r"(?<!p)repack(?!_kv)|interleave_\w*weights|weights?_(?:interleave|shuffle|preprocess)"),
    (
        GEMM,
        r"gemm(?!a(?:_|rms|norm|\d|$))|nvjet|cijk_|matmul|gemv|dot_?kernel|scaled_mm|einsum|wv_?splitk|splitk_?reduce|cutlass_\d\d|xmma(?!_pool)|cublas|hipblas",
    ),
    (
        GEMM,
        r"marlin|machete|allspark|(?<![a-z])(?:b|add)?mm(?![a-z0-9])|flatmm|lora_|(?:s|b)gmv|a(?:4|8|16)w(?:4|8|16)|wmma|mfma|streamk",
    ),
    (
        GEMM,
        r"scudnn|mul_mat|implicit_?(?:con|g)|convolve|conv2d|conv3d|winograd|fprop|dgrad|wgrad|conv_(?:fwd|bwd|depthwise)|linear_(?:kernel|fwd)|tensorop(?!with)|proj(?:ection)?s?_kernel",
    ),
    # -- norms and activations, with whatever is fused to them
    (
        NORM,
        r"norm(?!al(?!iz))|(?<![a-z])rms|silu|swish|swiglu|geglu|gelu|relu|act_and_mul|(?:^|_)m?hc_|(?:^|_)ln_(?:fwd|bwd|fused)|bn_(?:fw|bw)",
    ),
    (
        NORM,
        r"activation_kernel|gammabeta|rowwisemoments|mean_(?:\w*_)?pow|gated_act|batchnorm|rsqrt|sinkhorn|_glu_|softcap|sigmoid_(?:mul|gate)|mul_sigmoid|var_mean|bias_act",
    ),
    # -- number formats
    (
        QUANTIZATION,
        r"quant(?!ile|um|ity)|(?:token|channel|block|tensor|group)_cast|cast_(?:back|to_fp8|to_fp4|transpose)|ue8m0|cvt_(?:fp|bf|to|warp)",
    ),
    (
        QUANTIZATION,
        r"to_(?:mx|nv)?fp[48]|to_int8|fp8_(?:cast|conver)|convert_\w*(?:fp8|fp4|int8)|smooth_?int\d|segmented_max_reduction|convert_fp8|(?:gptq|awq|marlin)_?(?:repack|shuffle|reconstruct)|repack|amax|"
        r"(?:swizzle|interleave)_(?:sf|scale|block)|block_?scale_interleave|compute_(?:fp8_)?scale|(?:input|act|weight|row|col)_scale|scale_\d+x\d+|(?:block|group)_?scale|fp\d_pack|pack_fp|transpose_fp32",
    ),
    # -- what prepares queries, keys and values for attention
    (ATTENTION, r"qkv(?!\w*(?:cat|contig))|(?<![a-z])kv(?![a-z])|(?:repeat|process|flatten|append)kv"),
    # -- sampling by the operators it is made of
    (
        SAMPLING,
        r"soft_?max|(?:gather|radix|find)_?top_?k|[sm]btopk|radixfindkth|radixsort|bitonic|sortkv|segmented_?sort|top_?k(?:v\d|sort|merge|(?![a-z]))|topp|^sort|logsumexp",
    ),
    # -- what Inductor fused around arithmetic is arithmetic, though it converts and slices as well
    (
        OTHER,
        r"^triton_(?:poi|red|per)_fused\w*_(?:add|mul|sub|div|pow|exp|mean|sum|sigmoid|tanh|where|clamp|lt|le|gt|ge|eq|ne)(?:_|$)",
    ),
    # -- moving bytes
    (
        MEMORY,
        r"copy|memcpy|memset|(?<!pre)fill(?!ed|er)|cat_?array|(?<![a-z])cat(?:_|$)|concat|gather|scatter|transpose|index_?(?:select|put|kernel|elem|func|copy|add)|im2col|col2im|nchwtonhwc|nhwctonchw",
    ),
    (
        MEMORY,
        r"clone|(?<![a-z])zero_?|permut(?:e|ation)|embedding|constant_pad|repeat_interleave|masked_select|roll_cuda|flip|slice|transdata|contiguous|stack",
    ),
    # -- known, and of no family
    (
        OTHER,
        r"elementwise|^triton_|reduce_kernel|(?:^|_)(?:arange|cumsum|scan|where|add|mul|sub|div|compare|sum|clamp|tril|triu)(?:_|$)|functor",
    ),
    (
        OTHER,
        r"device(?:reduce|scan|select|radix|for|partition|runlength|histogram|merge)|metadata|prefix_sum|spin_kernel|trampoline_kernel|(?:max|avg|adaptive)_?pool|upsampl|multi_tensor_apply",
    ),
)
"""The ordered table. `RULES` is read top down; a user's own rules are tried before it."""

FUNCTORS: Final = _rules(
    (SAMPLING, r"argmax|softmax|exponential_kernel|exponential_transform|sampl"),
    (
        MEMORY,
        r"copy_kernel|copy<|fillfunctor|index_kernel|index_put|gather|scatter|catarray|masked_(?:scatter|fill)|flip_kernel",
    ),
    (NORM, r"silu|gelu|relu|swish|(?:layer|rms|batch|group|l2)_?norm|softplus|hardtanh"),
    (QUANTIZATION, r"quantiz"),
)
"""What makes an element-wise or reducing wrapper more than arithmetic, read from the functor it is given."""

_WRAPPER: Final = re.compile(
    r"^(?:kernel\d*|device_kernel|kentry\w*|run|main|entry|cutlass_kernel|global_kernel|kernel_cutlass_\w+|enable_\w+|"
    r"kernel_wrapper|generic_kernel|_?kernel_impl|invoke|universal_kernel|launch\w*)$"
)
_POINTWISE: Final = re.compile(
    r"elementwise_\w*kernel|elementwise_kernel|^reduce_kernel|multi_tensor_apply_kernel|^(?:unary|binary)_\w*kernel|transform_kernel"
)
# What Inductor names after the operators around it: a pointwise or reducing kernel holds none of these itself.
_INDUCTOR: Final = re.compile(r"^triton_(?:poi|red|per)_fused_")
_NEIGHBOURS: Final = re.compile(
    r"_(?:(?:add|b|badd|scaled_)?mm|convolution|linear|fmha_(?:v\d_)?(?:fwd|bwd)|scaled_dot_product_[a-z]+_attention|"
    r"(?<=norm_)moe_forward(?:_shared)?|all_reduce|wait_tensor)(?=_)"
)
_ANONYMOUS: Final = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}|\(anonymous class\)")
_MANGLED_PART: Final = re.compile(r"(\d{1,3})(?=[A-Za-z_])")


@dataclass(frozen=True)
class Match:
    """The family of a name and the rule that gave it; rule None: nothing matched."""

    family: str
    rule: Rule | None


def family_of(name: str, extra: tuple[Rule, ...] = ()) -> str:
    """The family of a kernel, copy or fill by its name. extra: the user's rules, tried first on the whole name."""
    return match(name, extra).family


@lru_cache(maxsize=1 << 16)
def match(name: str, extra: tuple[Rule, ...] = ()) -> Match:
    """The family of a name and why."""
    whole = name.strip().lower()
    own, qualified = _own_name(name)
    if _INDUCTOR.match(own):
        own = qualified = _NEIGHBOURS.sub("", own)
    for rules, text in ((extra, whole), (WHOLE_NAME, whole)):
        if found := _first(rules, text):
            return found
    if _POINTWISE.search(own):
        return _first(FUNCTORS, whole) or _first(RULES, own) or Match(OTHER, None)
    if _WRAPPER.match(own):
        inside = _first(RULES[:-2], whole.replace("flashinfer", ""))
        if inside:
            return inside
        return Match(GEMM, _CUTLASS) if "cutlass" in whole or whole.startswith("void ck") else Match(OTHER, None)
    return _first(RULES, own) or _first(RULES, qualified) or Match(OTHER, None)


def read_rules(lines: Iterable[str]) -> tuple[Rule, ...]:
    """A user's rules: `FAMILY<tab>regular expression` a line, `#` for remarks. ValueError names the bad line."""
    rules = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        family, tab, pattern = line.strip().partition("\t")
        if not tab or family not in FAMILIES:
            raise ValueError(f"line {number}: expected FAMILY<tab>PATTERN with a family of {', '.join(FAMILIES)}")
        try:
            rules.append(Rule(family, re.compile(pattern.strip(), re.IGNORECASE)))
        except re.error as error:
            raise ValueError(f"line {number}: {error}") from error
    return tuple(rules)


_CUTLASS: Final = Rule(GEMM, re.compile("cutlass"))


def _first(rules: tuple[Rule, ...], text: str) -> Match | None:
    for rule in rules:
        if rule.pattern.search(text):
            return Match(rule.family, rule)
    return None


def _own_name(name: str) -> tuple[str, str]:
    """A function's own name and its qualified name, lower case, without return type and arguments."""
    text = name.strip()
    if text.startswith("_Z"):
        parts = _mangled_parts(text)
        return parts[-1], "::".join(parts)
    text = _ANONYMOUS.sub("anon", text)
    qualified = _without_arguments(text).split()
    last = qualified[-1].lower().removesuffix(".kd") if qualified else ""
    last = last.replace("flashinfer::", "").replace("flashinfer_", "")
    return last.rsplit("::", 1)[-1] or last, last


def _without_arguments(text: str) -> str:
    """Everything before the parameter list, with template arguments cut out."""
    kept: list[str] = []
    angle = paren = 0
    for mark in text:
        if angle and mark == "(":
            paren += 1
        elif angle and mark == ")":
            paren = max(0, paren - 1)
        elif paren:
            continue
        elif mark == "<":
            angle += 1
        elif mark == ">":
            angle = max(0, angle - 1)
        elif not angle:
            if mark in "([" and kept:
                break
            kept.append(mark)
    return "".join(kept)


def _mangled_parts(text: str) -> list[str]:
    """The identifiers of an Itanium-mangled function name (the nested name, not its arguments), lower case."""
    at = 3 if text.startswith("_ZN") else 2
    while at < len(text) and text[at] in "KVLSt":
        at += 1
    parts = []
    while found := _MANGLED_PART.match(text, at):
        size = int(found.group(1))
        begin = found.end()
        parts.append(text[begin : begin + size].lower())
        at = begin + size
    return [part for part in parts if not part.startswith("_global__n_")] or [text.lower()]
