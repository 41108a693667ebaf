"""`twinrail analyze FILE...`: captures in, a report out, no node needed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from store.analysis.report import Options

DONE: Final = 0
BAD_USAGE: Final = 2
FAILED: Final = 3


def analyze(
    files: list[Path],
    *,
    json_out: bool = False,
    top: int = 15,
    families: Path | None = None,
    window: tuple[float, float] | None = None,
    diff: bool = False,
    scenarios: bool = False,
    html: Path | None = None,
    perfetto: Path | None = None,
    columns: bool = True,
) -> int:
    """Analyse torch traces and nsys exports (files, or folders of them) and print the report.

    json_out: one JSON document instead of text. top: rows of the kernel tables in text. families: a file of the user's
    own family rules. window: start and end in ms since each rank's first device event; its split comes on top, and it
    is what `perfetto` exports. diff: two files or folders, what changed from the first to the second. scenarios: each
    file or folder is a scenario, families x scenarios is the report. html, perfetto: also write these. columns: keep
    columnar files beside traces of 16 MiB and more.

    Returns 0 when something was analysed, 2 when a file is missing, an option is wrong or nothing could be used, 3 when
    an output cannot be written or the analysis could not run.
    """
    from store.analysis.families import read_rules
    from store.analysis.report import Options

    missing = [str(file) for file in files if not file.exists()]
    if missing or not files:
        return _say(f"no such file: {', '.join(missing)}" if missing else "no file given", BAD_USAGE)
    if diff and len(files) != 2:
        return _say("a diff needs exactly two files or folders", BAD_USAGE)
    if window and not 0 <= window[0] < window[1]:
        return _say("a window is START and END in ms, END after START", BAD_USAGE)
    try:
        rules = read_rules(families.read_text("utf-8").splitlines()) if families else ()
    except (OSError, ValueError) as error:
        return _say(f"family rules: {error}", BAD_USAGE)
    cut = (round(window[0] * 1e6), round(window[1] * 1e6)) if window else None
    options = Options(rules, window=cut, columns=columns)
    try:
        if diff or scenarios:
            return _side_by_side(files, options, json_out=json_out, diff=diff)
        return _one(files, options, json_out=json_out, top=top, html=html, perfetto=perfetto)
    except OSError as error:
        return _say(str(error), FAILED)


def _one(
    files: list[Path], options: Options, *, json_out: bool, top: int, html: Path | None, perfetto: Path | None
) -> int:
    from store.analysis.report import analyze as report_on
    from store.analysis.text import render

    report = report_on(files, options)
    if html:
        from store.analysis.page import page

        html.write_text(page(report), "utf-8")
    if perfetto:
        _write_perfetto(files, options, perfetto)
    _print(report, None if json_out else render(report, top, _columns()))
    return DONE if report["ranks"] else BAD_USAGE


def _write_perfetto(files: list[Path], options: Options, out: Path) -> None:
    from store.analysis.ingest import expand
    from store.analysis.report import views_of
    from store.analysis.window import write_perfetto

    views = [seen for file in expand(files) for seen in views_of(file, options)[0]]
    write_perfetto(out, views, *(options.window or (None, None)))


def _side_by_side(files: list[Path], options: Options, *, json_out: bool, diff: bool) -> int:
    from store.analysis.compare import diff as changes
    from store.analysis.compare import scenarios as columns
    from store.analysis.report import analyze as report_on
    from store.analysis.text_compare import diff_text, scenarios_text

    reports = [(file.name, report_on([file], options)) for file in files]
    problems = [problem for _, report in reports for problem in report["problems"]]
    empty = [name for name, report in reports if not report["ranks"]]
    if empty:
        problems += [f"{name}: nothing could be analysed" for name in empty]
    document: dict[str, Any] = {"schema": 1, "problems": problems}
    if diff:
        document |= {"a": reports[0][0], "b": reports[1][0], "diff": changes(reports[0][1], reports[1][1])}
        text = diff_text(document, _columns())
    else:
        document["scenarios"] = columns(reports)
        text = scenarios_text(document, _columns())
    _print(document, None if json_out else text)
    return BAD_USAGE if empty else DONE


def _print(document: dict[str, Any], text: str | None) -> None:
    if text is None:
        import orjson

        text = orjson.dumps(document).decode() + "\n"
    sys.stdout.write(text)


def _columns() -> int:
    """How wide text may be: the terminal, or COLUMNS; 80 where neither says."""
    return shutil.get_terminal_size((80, 24)).columns


def _say(text: str, code: int) -> int:
    from store.analysis.text import clean

    sys.stderr.write(f"analyze: {clean(text)}\n")
    return code
