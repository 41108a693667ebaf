"""What an operator may write in twinrail.toml, and what it is told when something is wrong."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.spec import ConfigError, load_inventory, parse_inventory, seconds

EXAMPLE = Path(__file__).parents[2] / "docs" / "twinrail.example.toml"

NODE = '[[nodes]]\nname = "n1"\nhost = "local"\n'


def test_the_example_is_valid_and_bases_apply() -> None:
    inventory = load_inventory(EXAMPLE)
    assert [n.name for n in inventory.nodes] == ["node5", "node7"]
    child = inventory.deployment("tp8pp2")
    assert (child.topology.tp, child.topology.pp, child.image) == (8, 2, inventory.deployment("tp16").image)
    assert child.topology.ranks == 16
    assert child.ready_timeout == 2400


def test_a_list_of_loads_is_one_case_each_and_one_can_be_named() -> None:
    inventory = load_inventory(EXAMPLE)
    assert [c.label for c in inventory.case("D2")] == ["D2-C16", "D2-C32", "D2-C64"]
    assert [c.concurrency for c in inventory.case("D2-C32")] == [32]
    assert [c.label for c in inventory.case("M1")] == ["M1-C32"]


def test_first_round_cases_are_built_in_and_can_be_replaced() -> None:
    inventory = parse_inventory(NODE + "[cases.D1]\nisl = 8\nosl = 4\n")
    assert {"P1", "P2", "P3", "P4", "D1", "D2", "M1"} <= set(inventory.cases)
    assert inventory.case("D1")[0].isl == 8
    assert inventory.case("P3")[0].isl == 128 * 1024


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[project]\nnam = 'x'\n", "did you mean 'name'"),
        ("[[nodes]]\nname = 'a'\n", "nodes.0.host"),
        ("not toml", "not valid TOML"),
        (NODE + NODE, "two nodes are called 'n1'"),
        (NODE + "[deployments.d]\nengine = 'sim'\nnodes = ['n2']\n", "names node 'n2'"),
        (NODE + "[deployments.d]\nengine = 'external'\n", "needs url"),
        (
            NODE + "[[nodes]]\nname='n2'\nhost='h'\n[deployments.d]\nengine = 'sim'\nnodes = ['n1', 'n2']\n",
            "1 ranks do not spread evenly over 2 nodes",
        ),
        (NODE + "[deployments.d]\nbase = 'x'\n", "base 'x' is not a deployment"),
        ("[deployments.a]\nbase = 'b'\n[deployments.b]\nbase = 'a'\n", "circle"),
        (NODE + "[cases.c]\nisl = 0\nosl = 1\n", "greater than 0"),
        (NODE + "[cases.c]\nisl = 1\nosl = 1\nslo = 'none'\n", "names slo 'none'"),
        (NODE + "[cases.c]\nisl = 1\nosl = 1\nconcurrency = []\n", "empty list"),
        (NODE + "[cases.c]\nisl = 1\nosl = 1\nbudget = 'soon'\n", "not a duration"),
    ],
)
def test_a_mistake_is_named_where_it_is(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_inventory(text)


def test_unknown_names_suggest_the_nearest() -> None:
    inventory = load_inventory(EXAMPLE)
    with pytest.raises(ConfigError, match="Did you mean 'D2'"):
        inventory.case("D22")
    with pytest.raises(ConfigError, match="Did you mean 'tp16'"):
        inventory.deployment("tp61")


def test_without_a_name_the_only_deployment_is_meant() -> None:
    with pytest.raises(ConfigError, match="which deployment"):
        load_inventory(EXAMPLE).deployment(None)


@given(st.integers(0, 50), st.integers(0, 59), st.integers(0, 59))
def test_durations_add_up(hours: int, minutes: int, rest: int) -> None:
    assert seconds(f"{hours}h{minutes}m{rest}s") == hours * 3600 + minutes * 60 + rest


@given(st.text())
def test_any_text_is_an_inventory_or_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_inventory(text)
