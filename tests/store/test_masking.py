"""Secrets are masked wherever text leaves an operator's hands; ordinary figures stay as they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.masking import MASK, is_secret, mask_argv, mask_env, mask_text

PLANTED = "s3cr3t-Value_x9"


@pytest.mark.parametrize(
    "text",
    [
        f"HF_TOKEN={PLANTED}",
        f"docker run -e OPENAI_API_KEY={PLANTED} image",
        f"vllm serve m --api-key {PLANTED} --port 1",
        f"--hf-token={PLANTED}",
        f"http://user:{PLANTED}@198.51.100.7/v1",
        f"http://198.51.100.7/v1?api_key={PLANTED}&x=1",
        f"Authorization: Bearer {PLANTED}",
        f'{{"api_key": "{PLANTED}"}}',
        f"password='{PLANTED}'",
        f"namespace(api_key='{PLANTED}', port=1)",
        f"'api_key': ['{PLANTED}', 'other{PLANTED}'], 'port': 1",
        f"api_key=('{PLANTED}',) port=1",
        f"api_key: [{PLANTED}]",
        f"api_key='{PLANTED} and no end",
    ],
)
def test_a_planted_secret_is_gone(text: str) -> None:
    masked = mask_text(text)
    assert PLANTED not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "text",
    [
        "--max-num-batched-tokens 8192 --tokenizer /models/x",
        "Decode batch, #running-req: 32, #token: 61733, token usage: 0.61, gen throughput (token/s): 771.2",
        "max_tokens=128 prompt_tokens=4 author=somebody",
        "NCCL_IB_HCA=mlx5_0,mlx5_3",
        "{'hf_token': None, 'api_key': [], 'tokens': [1, 2, 3]}",
    ],
)
def test_figures_and_harmless_names_stay(text: str) -> None:
    assert mask_text(text) == text


def test_argv_and_env_keep_their_shape() -> None:
    argv = ["vllm", "--api-key", PLANTED, f"--hf-token={PLANTED}", "--max-model-len", "4"]
    assert mask_argv(argv) == ["vllm", "--api-key", MASK, f"--hf-token={MASK}", "--max-model-len", "4"]
    assert mask_env({"HF_TOKEN": PLANTED, "TP": "2"}) == {"HF_TOKEN": MASK, "TP": "2"}


@given(st.text())
def test_masking_twice_changes_nothing_more(text: str) -> None:
    assert mask_text(mask_text(text)) == mask_text(text)


def test_counts_of_tokens_are_no_secret() -> None:
    assert is_secret("HF_TOKEN")
    assert is_secret("--api-key")
    assert not is_secret("--max-num-batched-tokens")
    assert not is_secret("max_new_tokens")
