"""A process that analyses one capture: `(path, options)` pickled on stdin, the file's report pickled on stdout.

A process of its own, not a fork or a pool: ranks run on all cores, the caller may hold threads and databases, and a
capture that is too big for the memory costs its own process only.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.analysis.report import FileReport, Options

_ROOT = Path(__file__).resolve().parents[2]


def analyze_apart(path: Path, options: Options) -> FileReport:
    """Analyse a capture in a process of its own. A process that dies costs a sentence."""
    from store.analysis.report import FileReport

    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-m", "store.analysis.worker"],
        input=pickle.dumps((path.absolute(), options)),
        capture_output=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        return FileReport(
            path.name, problems=[f"its analysis ended early ({how}); too little memory is the usual cause"]
        )
    report: FileReport = pickle.loads(done.stdout)
    return report


def main() -> int:
    """The process: read what to do, do it, hand it back."""
    from store.analysis.report import analyze_file

    path, options = pickle.load(sys.stdin.buffer)
    pickle.dump(analyze_file(path, options), sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
