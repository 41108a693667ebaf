"""Orders come from anywhere: what is not exactly an order is refused with a reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.orders import MAX_ORDER_BYTES, OrderError, StartRun, parse_order


def test_a_good_order_is_typed() -> None:
    order = parse_order(json.dumps({"kind": "start_run", "what": ["D1"], "repeats": 2, "who": "me"}), "order")
    assert isinstance(order, StartRun)
    assert (order.what, order.repeats, order.keep) == (["D1"], 2, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"kind": "rm -rf"}',
        '{"kind": "start_run"}',
        '{"kind": "start_run", "what": ["../../etc"]}',
        '{"kind": "start_run", "what": ["D1"], "command": "sh"}',
        '{"kind": "start_run", "what": ["D1"], "repeats": 100000}',
        '{"kind": "stop_run", "run_id": "a b; rm"}',
        '{"kind": "note", "text": "' + "x" * MAX_ORDER_BYTES + '"}',
    ],
)
def test_what_is_no_order_is_refused(text: str) -> None:
    with pytest.raises(OrderError):
        parse_order(text, "order")


def test_a_reading_token_cannot_order() -> None:
    with pytest.raises(OrderError, match="may read"):
        parse_order('{"kind": "stop_owner"}', "read")


@given(st.text())
def test_any_text_is_an_order_or_an_order_error(text: str) -> None:
    with pytest.raises(OrderError):
        parse_order(text, "order")
