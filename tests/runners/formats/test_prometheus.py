"""/metrics: our scan agrees with prometheus_client's parser; one row by aliases over engine versions."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runners.formats.base import Event, Skip, collect
from runners.formats.prometheus import Sample, parse, parse_page, parse_sample, scan
from tests.runners.formats.samples import expected, text

PAGES = [item.file for item in expected() if item.kind == "engine_metrics"]


@pytest.mark.parametrize("name", PAGES)
def test_every_sample_is_what_the_reference_parser_reads(name: str) -> None:
    page = text(name)
    theirs = sorted(
        (sample.name, tuple(sorted(sample.labels.items())), repr(float(sample.value)))
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    )
    ours = sorted(
        (sample.name, tuple(sorted(sample.labels.items())), repr(float(sample.value)))
        for sample in scan(page.splitlines(), buckets=True)
        if isinstance(sample, Sample)
    )
    assert ours == theirs


def row(name: str) -> dict[str, Any]:
    found = parse_page(text(name))
    assert found is not None
    return found


def test_new_names_win_over_deprecated_twins_and_created_is_a_time() -> None:
    found = row("vllm-metrics/v0.10-deprecated-and-created.prom")
    assert (found["prefix_queries_total"], found["prefix_hits_total"], found["prefix_unit"]) == (32, 0, "tokens")
    assert found["kv_usage"] == 9.75010481363281e-06


def test_old_prefix_counters_count_blocks() -> None:
    page = text("vllm-metrics/v0.8-v1-no-engine-label.prom")
    page += 'vllm:gpu_prefix_cache_queries_total{model_name="m"} 12.0\n'
    found = parse_page(page)
    assert found is not None
    assert (found["prefix_queries_total"], found["prefix_unit"]) == (12, "blocks")


def test_real_pages() -> None:
    vllm = row("vllm-metrics/v0.32-spec-real.prom")
    assert (vllm["running"], vllm["drafts_total"], vllm["accepted_tokens_total"]) == (2, 120, 331)
    assert vllm["accepted_per_position"] == {"0": 117, "1": 117, "2": 97}
    assert vllm["kv_total_tokens"] == 524288
    sglang = row("sglang-metrics/v0.5.23-real.prom")
    assert (sglang["prompt_tokens_total"], sglang["generation_tokens_total"]) == (1505, 360)
    assert sglang["spec_accept_length"] is None
    assert sglang["scheduler_idle_seconds_total"] == pytest.approx(95.39, abs=0.01)


def test_ranks_are_not_added_but_engines_are() -> None:
    found = row("sglang-metrics/tp8-ranked-with-timestamp.prom")
    assert (found["waiting"], found["kv_usage"], found["running"]) == (11, 0.42, 2)
    page = "".join(f'vllm:num_requests_running{{engine="{n}",model_name="m"}} {n + 1}\n' for n in range(3))
    both = parse_page(page)
    assert both is not None
    assert both["running"] == 6


def test_a_metric_without_samples_is_null_not_zero() -> None:
    found = parse_page(
        "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\nvllm:kv_cache_usage_perc 0\n"
    )
    assert found is not None
    assert found["running"] is None
    assert found["kv_usage"] == 0.0


def test_an_empty_page_is_a_broken_source() -> None:
    assert parse_page("") is None
    (event,) = collect(parse([])).events
    assert isinstance(event, Event)
    assert event.name == "no_data"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('a{b="c\\"d\\\\e\\nf",g=""} 1', Sample("a", {"b": 'c"d\\e\nf', "g": ""}, 1.0)),
        ("a +Inf", Sample("a", {}, float("inf"))),
        ('a{b="}"} 2e3 1790347303000', Sample("a", {"b": "}"}, 2000.0)),
    ],
)
def test_hard_lines(line: str, value: Sample) -> None:
    assert parse_sample(line) == value


@pytest.mark.parametrize("line", ["a", 'a{b="c} 1', "a{b=c} 1", "a 1_0", "1a 1", "a 1 2 3"])
def test_bad_lines_are_counted(line: str) -> None:
    assert isinstance(parse_sample(line), Skip)
