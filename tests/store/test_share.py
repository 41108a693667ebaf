from __future__ import annotations

import math
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from store.database import Query, Store
from store.errors import OwnerGone, QueryCancelled, Refused, StoreError
from store.queries import all_queries, literal
from store.share import Remote, free_port, make_token, read_token
from store.wire import pack_answer, pack_error, unpack
from tests.store.owner_process import questions
from tests.store.tricks import ALLOWED, REFUSED

ENDLESS = "SELECT sum(a.range * b.range % 7) FROM range(100000) a, range(10000000) b"


@dataclass
class Owner:
    folder: Path
    url: str
    process: subprocess.Popen[str]

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def connect(self, role: str = "read") -> Remote:
        return Remote.connect(self.url, self.folder / f"{role}.token")

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def start(folder: Path, port: int = 0) -> Owner:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.store.owner_process", str(folder), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url, "the owner did not start"
    return Owner(folder, url, process)


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    owner = start(tmp_path_factory.mktemp("owner"))
    yield owner
    owner.stop()
    assert owner.process.returncode == 0, "the owner does not end when told to"


@pytest.fixture(scope="module")
def remote(owner: Owner) -> Iterator[Remote]:
    remote = owner.connect()
    yield remote
    remote.close()


def raw(remote: Remote, sql: str) -> tuple[tuple[str, ...], tuple[str, ...], list[tuple[Any, ...]]]:
    """Ask as a plain DuckDB client would."""
    with remote._session() as session:
        cursor = remote._connection.cursor()
        cursor.execute(f"FROM quack_query_by_name({literal(session)}, {literal(sql)})")
        described = cursor.description or []
        return tuple(d[0] for d in described), tuple(str(d[1]) for d in described), cursor.fetchall()


def comparable(value: Any) -> Any:
    """NaN equal to itself, and the type beside the value."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, (list, tuple)):
        return [comparable(v) for v in value]
    return type(value).__name__, value


@pytest.mark.parametrize("name", [q.name for q in all_queries()])
def test_a_named_query_answers_the_same_attached_as_in_process(owner: Owner, remote: Remote, name: str) -> None:
    here = pickle.loads((owner.folder / "in_process.pickle").read_bytes())[name]
    attached = remote.query(questions()[name])
    plain = raw(remote, questions()[name])
    for there in ((attached.columns, attached.types, attached.rows), plain):
        assert there[0] == here[0]
        assert there[1] == here[1]
        assert comparable(there[2]) == comparable(here[2])


def test_the_sample_rows_give_the_queries_something_to_answer(owner: Owner) -> None:
    here = pickle.loads((owner.folder / "in_process.pickle").read_bytes())
    answered = {name for name, (_, _, rows) in here.items() if rows}
    metrics = {"attempt_metrics", "request_metrics", "run_metrics", "attempt_windows"}
    lists = {"runs_list", "run_summary_attempts", "attempt_requests", "jobs_list", "orders_list", "node_states_now"}
    assert metrics | lists | {"tables_overview"} <= answered


def test_values_of_every_kind_cross_unchanged(remote: Remote) -> None:
    answer = remote.query(
        "SELECT 9223372036854775807, sum(9223372036854775807::HUGEINT * 3), 'nan'::DOUBLE, 1.50::DECIMAL(5, 2), "
        "DATE '2026-01-02', TIMESTAMP '2026-01-02 03:04:05.000006', TIME '01:02:03', INTERVAL 3 DAY, NULL, true, "
        "[1, NULL], {'a': 'é'}, map([1], ['x']), 'b\\x00'::BLOB, chr(0) || '数据', "
        "'00000000-0000-0000-0000-00000000002a'::UUID"
    )
    row = list(answer.rows[0])
    assert math.isnan(row.pop(2))
    assert [str(v) for v in row] == [
        "9223372036854775807", "27670116110564327421", "1.50", "2026-01-02", "2026-01-02 03:04:05.000006", "01:02:03",
        "3 days, 0:00:00", "None", "True", "[1, None]", "{'a': 'é'}", "{1: 'x'}", "b'b\\x00'", "\0数据",
        "00000000-0000-0000-0000-00000000002a",
    ]  # fmt: skip
    assert answer.types[1] == "HUGEINT"


@pytest.mark.parametrize("sql", REFUSED)
def test_tricks_are_refused_by_the_owner(remote: Remote, sql: str) -> None:
    with pytest.raises(StoreError):
        remote.query(sql)
    if sql.strip("; "):
        with pytest.raises(Exception, match=r"Authorization failed|Parser Error|syntax error|must not be empty"):
            raw(remote, sql)


@pytest.mark.parametrize("sql", ALLOWED)
def test_honest_questions_are_answered(remote: Remote, sql: str) -> None:
    answer, (plain_columns, plain_types, _) = remote.query(sql), raw(remote, sql)
    assert answer.types == plain_types
    assert len(answer.columns) == len(plain_columns)  # Quack itself renames columns that come twice


def test_nothing_was_changed_by_all_that(owner: Owner, remote: Remote) -> None:
    assert remote.query("SELECT count(*) FROM runs").rows == [(2,)]
    assert remote.query("SELECT count(*) FROM notes").rows == [(2,)]
    assert not (owner.folder / "orders.txt").exists()


def test_only_the_token_of_role_order_may_order(owner: Owner, remote: Remote) -> None:
    with pytest.raises(Refused):
        remote.submit_order('{"kind": "stop"}')
    orders = owner.folder / "orders.txt"
    assert not orders.exists()
    with pytest.raises(Refused):
        remote.query("SELECT submit_order('{}')")
    ordering = owner.connect("order")
    assert (
        ordering.submit_order('{"who": "O\'Neil", "why": "größer"}') == 'accepted {"who": "O\'Neil", "why": "größer"}'
    )
    assert orders.read_text("utf-8") == 'order {"who": "O\'Neil", "why": "größer"}\n'
    orders.unlink()
    assert ordering.query("SELECT 1").rows == [(1,)]
    ordering.close()


def test_a_wrong_token_is_not_let_in(owner: Owner) -> None:
    with pytest.raises(StoreError, match="Authentication failed"):
        Remote.connect(owner.url, "wrong")
    with pytest.raises(StoreError, match="Authentication failed"):
        Remote.connect(owner.url, read_token(owner.folder / "read.token")[:-1])


def test_token_files_are_for_their_owner_only(owner: Owner, tmp_path: Path) -> None:
    for name in ("read.token", "order.token"):
        assert (owner.folder / name).stat().st_mode & 0o777 == 0o600
    token = make_token(tmp_path / "t")
    assert make_token(tmp_path / "t") == token
    (tmp_path / "t").chmod(0o640)
    with pytest.raises(StoreError, match="others may read"):
        make_token(tmp_path / "t")


def test_a_token_file_that_was_never_written_gets_a_token(tmp_path: Path) -> None:
    (tmp_path / "t").touch(0o600)
    assert len(make_token(tmp_path / "t")) > 30
    assert (tmp_path / "t").stat().st_mode & 0o077 == 0


def test_the_owner_cannot_reach_files_once_it_serves(remote: Remote) -> None:
    with pytest.raises(StoreError, match="refused"):
        remote.query("FROM read_text('/etc/hostname')")


def test_a_cancelled_query_stops_in_the_owner_and_others_go_on_meanwhile(owner: Owner, remote: Remote) -> None:
    handle = Query()
    outcome: list[BaseException] = []

    def ask() -> None:
        try:
            remote.query(ENDLESS, handle=handle)
        except StoreError as e:
            outcome.append(e)

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.5)
    assert remote.query("SELECT 1").rows == [(1,)]
    assert asking.is_alive()
    handle.cancel()
    asking.join(10)
    assert not asking.is_alive()
    assert isinstance(outcome[0], QueryCancelled)
    time.sleep(0.2)
    before = owner.cpu_s()
    time.sleep(1)
    assert owner.cpu_s() - before < 0.5, "the owner still computes"


def test_errors_keep_their_words(remote: Remote) -> None:
    with pytest.raises(StoreError, match="nosuch"):
        remote.query("SELECT nosuch FROM runs")


def test_watchers_see_a_dead_owner_at_once_and_a_new_one_without_connecting_again(tmp_path: Path) -> None:
    port = free_port()
    first = start(tmp_path, port)
    remote = first.connect("order")
    assert remote.query("SELECT 1").rows == [(1,)]
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    began = time.monotonic()
    with pytest.raises(OwnerGone):
        remote.query("SELECT 1")
    with pytest.raises(OwnerGone):
        remote.submit_order("{}")
    assert time.monotonic() - began < 5
    second = start(tmp_path, port)
    assert remote.query("SELECT count(*) FROM runs").rows == [(2,)]
    assert remote.submit_order("{}") == "accepted {}"
    remote.close()
    second.stop()


def test_nobody_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(OwnerGone):
        Remote.connect(free_port(), "token")


def test_only_values_are_read_from_the_wire() -> None:
    assert unpack(pack_answer(("a",), ("BIGINT",), [(1,)])) == (("a",), ("BIGINT",), [(1,)])
    with pytest.raises(Refused, match="no"):
        unpack(pack_error(Refused("no")))
    with pytest.raises(StoreError, match="cannot be read"):
        unpack(pickle.dumps(Store))
    with pytest.raises(StoreError, match="cannot be read"):
        unpack(b"rubbish")
