"""`twinrail analyze FILE...`: captures in, a report out, no node needed."""

from __future__ import annotations

import sys
from pathlib import Path

DONE, NEGATIVE, BAD_USAGE, FAILED = 0, 1, 2, 3


def analyze(files: list[Path], *, json_out: bool = False, top: int = 15, families: Path | None = None) -> int:
    """Analyse torch traces and nsys exports and print the report.

    json_out: one JSON document instead of text. top: rows of the kernel tables in text. families: a file of the user's
    own family rules. Returns 0 when something was analysed, 2 when a file is missing or none could be used, 3 when the
    analysis itself could not run.
    """
    from store.analysis.families import read_rules
    from store.analysis.report import analyze as report_on

    missing = [str(file) for file in files if not file.exists()]
    if missing or not files:
        return _say(f"no such file: {', '.join(missing)}" if missing else "no file given", BAD_USAGE)
    try:
        rules = read_rules(families.read_text("utf-8").splitlines()) if families else ()
    except (OSError, ValueError) as error:
        return _say(f"family rules: {error}", BAD_USAGE)
    try:
        report = report_on(files, extra=rules)
    except OSError as error:
        return _say(str(error), FAILED)
    if json_out:
        import orjson

        sys.stdout.write(orjson.dumps(report).decode() + "\n")
    else:
        from store.analysis.text import render

        sys.stdout.write(render(report, top))
    return DONE if report["ranks"] else BAD_USAGE


def _say(text: str, code: int) -> int:
    from store.analysis.text import clean

    sys.stderr.write(f"analyze: {clean(text)}\n")
    return code
