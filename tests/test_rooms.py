"""The four rooms hold at run time: the lower ones load no terminal toolkit, the store loads no SSH."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def _modules(room: str) -> list[str]:
    found = pkgutil.walk_packages([str(ROOT / room)], prefix=f"{room}.")
    return sorted(m.name for m in found if not m.name.endswith("__main__"))


@pytest.mark.parametrize(
    ("room", "forbidden"),
    [("store", ["textual", "asyncssh", "aiohttp", "runners"]), ("runners", ["textual", "screens", "console"])],
)
def test_importing_a_whole_room_loads_nothing_from_above(room: str, forbidden: list[str]) -> None:
    modules = [m for m in _modules(room) if m != "runners.payload.loadgen"]  # needs aiohttp, runs on nodes
    assert len(modules) > 10
    code = f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\n"
    code += f"print([m for m in {forbidden!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_help_is_quick_because_heavy_libraries_stay_out() -> None:
    heavy = ["textual", "asyncssh", "duckdb", "numpy", "pydantic"]
    code = f"import sys, console.cli; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_payload_scripts_import_nothing_of_ours() -> None:
    for path in (ROOT / "runners" / "payload").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        ours = [line for line in text.splitlines() if line.startswith(("from runners", "import runners", "from store"))]
        assert ours == [], path.name
