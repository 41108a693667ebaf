"""What all verbs share: a safe terminal, one JSON document, and exit codes that scripts can rely on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from console import verbs
from store.database import Store
from store.records import Note

TWINRAIL = str(Path(sys.executable).with_name("twinrail"))


def test_nothing_that_a_node_wrote_reaches_the_terminal_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    verbs.out("first\x1b[2J\nsecond\x9b31m")
    verbs.say("\x1b]0;title\x07 of\r a window")
    verbs.print_table(["a\x1b[1m"], [["b\x1b[1m"]])
    said = capsys.readouterr()
    assert said.out == "first?[2J\nsecond?31m\na?[1m\nb?[1m\n"
    assert said.err == "?]0;title? of? a window\n"


def test_json_escapes_every_control_and_keeps_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    verbs.out_json({"text": "a\x1b[2J\x7f\x9b31m ä"})
    said = capsys.readouterr().out
    assert not set(said) & {"\x1b", "\x7f", "\x9b"}
    assert json.loads(said) == {"schema": 1, "text": "a\x1b[2J\x7f\x9b31m ä"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration whose store holds one note and has no owner."""
    path = tmp_path / "twinrail.toml"
    path.write_text('[project]\nname = "t"\n', encoding="utf-8")
    with Store.open(tmp_path / "twinrail.duckdb") as store:
        store.write([Note(run_id=None, wall_ns=1, who="somebody", text="kept")]).result(10)
    return path


def _sql(config: Path, query: str) -> subprocess.CompletedProcess[str]:
    argv = [TWINRAIL, "sql", query, "--config", str(config), "--json"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "query", ["drop table notes", "delete from notes", "select * from read_csv('/etc/passwd')", "copy notes to 'x.csv'"]
)
def test_sql_only_reads_also_when_no_owner_lives(config: Path, query: str) -> None:
    refused = _sql(config, query)
    assert refused.returncode == verbs.USAGE
    assert "refused" in refused.stderr
    assert json.loads(_sql(config, "select text from notes").stdout)["rows"] == [["kept"]]


def test_a_store_that_cannot_be_opened_is_no_wrong_usage(config: Path) -> None:
    config.with_name("twinrail.duckdb").write_bytes(b"garbage" * 1000)
    broken = _sql(config, "select 1")
    assert broken.returncode == verbs.INFRASTRUCTURE
    assert "Traceback" not in broken.stderr
