"""/metrics by the script that runs on the node, against a small HTTP server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from runners.payload import scrape
from runners.probes import PROBES, Parsed
from store.records import EngineSample, LogEvent
from tests.runners.probes.running import HERE, observe

PAGE = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1000.0
vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 5
vllm:time_to_first_token_seconds_sum{model_name="m"} 1.5
vllm:time_to_first_token_seconds_count{model_name="m"} 5
#end
#frame host 1 1
"""


@contextmanager
def serving(pages: list[tuple[int, bytes]], protocol: str = "HTTP/1.1") -> Iterator[str]:
    """A server that gives these answers in turn, the last one for ever."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = protocol

        def do_GET(self) -> None:
            assert self.path == "/metrics"
            status, body = pages.pop(0) if len(pages) > 1 else pages[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def samples(parsed: Parsed) -> list[EngineSample]:
    return [r for r in parsed.records if isinstance(r, EngineSample)]


@pytest.mark.parametrize("protocol", ["HTTP/1.0", "HTTP/1.1"])
def test_a_page_becomes_one_row_whatever_it_holds(protocol: str) -> None:
    with serving([(200, PAGE)], protocol) as url:
        parsed = observe("engine", lambda p: len(samples(p)) >= 2, url=url)
    assert parsed.skipped == 0
    row = samples(parsed)[0]
    assert (row.engine, row.source, row.running, row.waiting, row.kv_usage) == ("vllm", "metrics", 7, None, 0.25)
    assert (row.preemptions_total, row.generation_tokens_total) == (2, 1000)
    assert (row.ttft_sum_s, row.ttft_count) == (1.5, 5)
    assert row.mono_ns is not None


def test_sglang_retractions_are_its_preemptions() -> None:
    page = b'sglang:num_running_reqs{tp_rank="0"} 1\nsglang:num_retracted_requests_total{tp_rank="0"} 9\n'
    with serving([(200, page)]) as url:
        row = samples(observe("engine", lambda p: bool(samples(p)), url=url))[0]
    assert (row.engine, row.running, row.preemptions_total) == ("sglang", 1, 9)


def test_an_empty_page_and_an_absent_server_are_gaps_with_a_reason() -> None:
    empty = [(200, b"")] * 3
    with serving([*empty, (503, b"starting"), (503, b"starting"), (200, PAGE)]) as url:
        parsed = observe("engine", lambda p: bool(samples(p)), url=url)
    told = [(r.name, r.detail) for r in parsed.records if isinstance(r, LogEvent)]
    assert [name for name, _ in told] == ["no_data", "source_unavailable"]  # each once, however long it lasts
    assert told[1][1] == "/metrics: HTTP 503"
    gone = observe("engine", lambda p: bool(p.records), url=url)
    assert [r.name for r in gone.records if isinstance(r, LogEvent)] == ["source_unavailable"]
    assert "refused" in str(gone.records[0])


def test_the_scraper_keeps_no_line_that_could_end_its_frame() -> None:
    assert not [line for line in scrape.slim(PAGE) if line.startswith(b"#")]
    huge = scrape.Scraper("127.0.0.1:9/base/")
    assert (huge.host, huge.port, huge.path) == ("127.0.0.1", 9, "/base/metrics")


def test_without_a_url_there_is_nothing_to_ask() -> None:
    with pytest.raises(ValueError, match="url"):
        PROBES["engine"].argv(HERE)
