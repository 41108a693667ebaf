"""What made requests fail is said with the attempt, without secrets."""

from pathlib import Path

from runners.clients.loadgen import failures_of
from runners.ingest import _masked
from store.database import Store
from store.records import Request


def _request(number: int, status: str, error: str | None = None, text: str | None = None) -> Request:
    return Request(
        run_id="r",
        attempt_id="r.a1",
        request_id=number,
        kind="load",
        phase="steady",
        measured=True,
        status=status,
        error=error,
        error_text=text,
        isl=1,
        osl=1,
        scheduled_ns=1,
        sent_ns=1,
        sent_wall_ns=1,
        end_ns=2,
        chunk_ns=[],
        chunk_tokens=[],
    )


async def test_the_most_frequent_failure_is_named_with_its_count(tmp_path: Path) -> None:
    http = [_request(n, "failed", "http", "500: boom") for n in range(3)]
    with Store.open(tmp_path / "t.duckdb") as store:
        await store.commit([*http, _request(4, "failed", "reset", "gone"), _request(5, "ok")])
        assert failures_of(store, "r.a1") == "; 3 failed with http: 500: boom"
        assert failures_of(store, "r.a2") == ""


def test_a_secret_in_a_servers_answer_stays_out_of_the_store() -> None:
    row = _masked(_request(1, "failed", "http", "wrong api_key=hunter2hunter2 at http://bob:pw12345@198.51.100.7"))
    assert "hunter2" not in repr(row)
    assert "pw12345" not in repr(row)
