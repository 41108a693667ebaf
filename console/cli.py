"""The command line. Every verb works without the TUI; everything heavy is imported by the verb that needs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from console.verbs import Place

app = typer.Typer(
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Tune LLM inference over GPU nodes: run, watch, compare, export. Without a verb: the console.",
)

Config = Annotated[Path | None, typer.Option("--config", help="twinrail.toml; default ./twinrail.toml")]
Demo = Annotated[bool, typer.Option("--demo", help="use the embedded lab instead of real nodes")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON document on stdout")]
Foreground = Annotated[bool, typer.Option("--foreground", help="run the owner inside this process")]


def _leave(code: int) -> None:
    raise typer.Exit(code)


@app.callback(invoke_without_command=True)
def console(ctx: typer.Context, config: Config = None, demo: Demo = False, version: bool = False) -> None:
    """The console (TUI); starts or finds the owner."""
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"twinrail {installed('twinrail')}")
        _leave(0)
    if ctx.invoked_subcommand is None:
        from console.verbs.tui import open_console

        _leave(open_console(Place(config, demo)))


@app.command()
def demo(
    headless: Annotated[bool, typer.Option(help="run the tour without the console and print its summary")] = False,
    as_json: AsJson = False,
    keep: Annotated[bool, typer.Option(help="leave the embedded lab up")] = False,
    scenario: Annotated[
        str, typer.Option(help="what goes wrong: idle-rail, slow-rank, host-bound, kv-pressure, crash ...")
    ] = "healthy",
) -> None:
    """Embedded two-node lab and the console: no GPU, no root, no sshd. Everything it shows is simulated."""
    from console.verbs.demo import run_demo

    _leave(run_demo(headless=headless, as_json=as_json, keep=keep, scenario=scenario))


@app.command()
def init(
    hosts: Annotated[list[str] | None, typer.Argument(help="nodes in rank order; default: asked for")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="the file to write; default ./twinrail.toml")] = None,
    ssh_config: Annotated[Path | None, typer.Option("--ssh-config", help="default ~/.ssh/config")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="ask nothing, take what is proposed")] = False,
    force: Annotated[bool, typer.Option("--force", help="replace the file if it is there")] = False,
    as_json: AsJson = False,
) -> None:
    """Questions and a look at the nodes -> a commented twinrail.toml."""
    from console.verbs.init import InitRequest, run_init

    _leave(run_init(InitRequest(hosts or [], config, ssh_config, yes=yes, force=force, as_json=as_json)))


@app.command()
def check(
    config: Config = None,
    demo: Demo = False,
    deployment: Annotated[str | None, typer.Option("--deployment", "-d")] = None,
    as_json: AsJson = False,
    full: Annotated[bool, typer.Option("--full", help="hash whole model files, not samples of them")] = False,
) -> None:
    """Preflight on all nodes; the RDMA gate of a living deployment, else unknown."""
    from console.verbs.check import run_check

    _leave(run_check(Place(config, demo), deployment, as_json=as_json, full=full))


@app.command()
def run(
    what: Annotated[list[str], typer.Argument(help="a plan, or one or more cases")],
    deployment: Annotated[str | None, typer.Option("--deployment", "-d")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, max=1000)] = None,
    config: Config = None,
    demo: Demo = False,
    as_json: AsJson = False,
    foreground: Foreground = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the exact commands and the duration, do nothing")
    ] = False,
    keep: Annotated[bool, typer.Option(help="leave the server up afterwards")] = False,
    vary: Annotated[
        list[str] | None,
        typer.Option(help="concurrency=8,16, isl=, osl=, requests=, budget=, slo=: a case of its own, by that name"),
    ] = None,
    scale: Annotated[
        float | None, typer.Option(min=0.0001, max=1, help="of every length in tokens, for small servers: 0.01")
    ] = None,
    changes: Annotated[str | None, typer.Option(help="what differs from what was measured before")] = None,
    why: Annotated[str | None, typer.Option(help="why that should matter to what limits the results now")] = None,
    expects: Annotated[str | None, typer.Option(help="the effect that you expect")] = None,
    gate_override: Annotated[
        str | None, typer.Option(help="pass a refusing RDMA gate, with the reason in words")
    ] = None,
) -> None:
    """Run a plan, a sweep or cases. Ctrl-C once stops cleanly and keeps all data, twice leaves at once."""
    from console.verbs.run import RunRequest, run_run, vary_of

    varied = vary_of(vary or [])
    request = RunRequest(what, deployment, repeats, keep, why, gate_override, changes, expects, varied, scale)
    place = Place(config, demo)
    _leave(run_run(place, request, as_json=as_json, foreground=foreground, dry_run=dry_run))


@app.command()
def search(
    case: Annotated[str | None, typer.Argument(metavar="CASE", help="a case, or a table of [searches]")] = None,
    go_on: Annotated[str | None, typer.Option("--continue", metavar="RUN", help="a finished search goes on")] = None,
    again: Annotated[float | None, typer.Option(help="with --continue: measure this load once more")] = None,
    deployment: Annotated[str | None, typer.Option("--deployment", "-d")] = None,
    step: Annotated[int | None, typer.Option(min=1, help="the ladder: 1, STEP, 2 STEP ...; default 16")] = None,
    maximum: Annotated[int | None, typer.Option("--max", min=1, help="highest concurrency; default 256")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, max=100, help="of a point; default 3")] = None,
    refine: Annotated[int | None, typer.Option(min=1, help="how finely each answer is pinned down; default 4")] = None,
    stop_at_slo: Annotated[
        bool | None, typer.Option("--stop-at-slo/--climb-on", help="whether a breach of the SLO ends the climb")
    ] = None,
    max_rate: Annotated[float | None, typer.Option(help="search by request rate, up to this many a second")] = None,
    step_rate: Annotated[float | None, typer.Option(help="the ladder by rate; default 1")] = None,
    refine_rate: Annotated[float | None, typer.Option(help="how finely a rate is pinned down; default 0.25")] = None,
    stop_at_preemption: Annotated[
        bool | None, typer.Option("--stop-at-preemption", help="climb to the first request that is put back")
    ] = None,
    config: Config = None,
    demo: Demo = False,
    as_json: AsJson = False,
    foreground: Foreground = False,
    keep: Annotated[bool, typer.Option(help="leave the server up afterwards")] = False,
    vary: Annotated[list[str] | None, typer.Option(help="isl=, osl=, requests=, budget=, slo=; as of `run`")] = None,
    changes: Annotated[str | None, typer.Option(help="what differs from what was measured before")] = None,
    why: Annotated[str | None, typer.Option(help="why that should matter to what limits the results now")] = None,
    expects: Annotated[str | None, typer.Option(help="the effect that you expect")] = None,
    gate_override: Annotated[
        str | None, typer.Option(help="pass a refusing RDMA gate, with the reason in words")
    ] = None,
) -> None:
    """Concurrency search: the most that succeeds, the most tokens, the most within the SLO."""
    from console.verbs.run import vary_of
    from console.verbs.search import ContinueRequest, SearchRequest, run_continue, run_search

    place = Place(config, demo)
    if go_on is not None:
        if case is not None or step is not None or stop_at_slo is not None:
            raise typer.BadParameter(
                "--continue goes with --again, --refine, --max, --max-rate, --repeats, --keep only"
            )
        asked = ContinueRequest(go_on, refine, maximum, max_rate, repeats, again, keep)
        _leave(run_continue(place, asked, as_json=as_json, foreground=foreground))
    if case is None or again is not None:
        raise typer.BadParameter("name a case to search, or a finished search with --continue RUN")
    request = SearchRequest(
        what=case,
        deployment=deployment,
        step=step,
        refine=refine,
        max_concurrency=maximum,
        repeats=repeats,
        stop_at_slo=stop_at_slo,
        stop_at_preemption=stop_at_preemption,
        max_rate=max_rate,
        step_rate=step_rate,
        refine_rate=refine_rate,
        keep=keep,
        why=why,
        gate_override=gate_override,
        changes=changes,
        expects=expects,
        vary=vary_of(vary or []),
    )
    _leave(run_search(place, request, as_json=as_json, foreground=foreground))


@app.command()
def ab(
    a: Annotated[str, typer.Argument(metavar="A", help="run, runs with commas, or a run of `ab --run` alone")],
    b: Annotated[str | None, typer.Argument(metavar="B")] = None,
    measure: Annotated[
        bool, typer.Option("--run", help="measure first: A and B are deployments, or values of --vary")
    ] = False,
    case: Annotated[list[str] | None, typer.Option(help="with --run: what to measure, may come often")] = None,
    vary: Annotated[str | None, typer.Option(help="with --run: flags.--X, env.X, case.X ...")] = None,
    deployment: Annotated[str | None, typer.Option("--deployment", "-d")] = None,
    blocks: Annotated[int, typer.Option(min=1, max=400, help="A and B each so often, turned round each time")] = 6,
    change: Annotated[list[str] | None, typer.Option(help="what is meant to differ, may come often, * allowed")] = None,
    primary: Annotated[str | None, typer.Option(help="the metric that decides, e.g. tpot_ms_p95")] = None,
    margin: Annotated[float | None, typer.Option(help="percent that still count as no change; default 3")] = None,
    noise: Annotated[float | None, typer.Option(help="declared CV of one measurement in percent")] = None,
    config: Config = None,
    demo: Demo = False,
    as_json: AsJson = False,
    foreground: Foreground = False,
    keep: Annotated[bool, typer.Option(help="leave the server up afterwards")] = False,
    why: Annotated[str | None, typer.Option(help="why it should matter now")] = None,
    expects: Annotated[str | None, typer.Option(help="the effect that is expected")] = None,
    gate_override: Annotated[
        str | None, typer.Option(help="pass a refusing RDMA gate, with the reason in words")
    ] = None,
) -> None:
    """Compare A with B: verdict, interval, what changed. --run measures A B, B A, A B ... first."""
    from console.verbs.ab import AbRequest, Judging, compare_runs, run_ab

    judging = Judging(primary, change or [], margin and margin / 100, noise and noise / 100)
    place = Place(config, demo)
    if not measure:
        if case or vary or deployment:
            raise typer.BadParameter("--case, --vary and --deployment go with --run")
        _leave(compare_runs(place, a, b, judging, as_json=as_json))
    if b is None or not case:
        raise typer.BadParameter("--run needs A, B and at least one --case")
    request = AbRequest(a, b, case, vary, deployment, blocks, keep, why, None, expects, gate_override)
    _leave(run_ab(place, request, judging, as_json=as_json, foreground=foreground))


@app.command()
def resume(
    run_id: Annotated[str | None, typer.Argument(help="default: every unfinished run")] = None,
    config: Config = None,
    demo: Demo = False,
    as_json: AsJson = False,
    foreground: Foreground = False,
) -> None:
    """Go on after a crash or a pause: done attempts stay, a broken one is repeated."""
    from console.verbs.run import run_resume

    _leave(run_resume(Place(config, demo), run_id, as_json=as_json, foreground=foreground))


RunOn = Annotated[str | None, typer.Argument(metavar="RUN", help="default: the only run that is on")]


@app.command()
def pause(run_id: RunOn = None, config: Config = None, demo: Demo = False, as_json: AsJson = False) -> None:
    """Begin no new attempt of a run until `resume`; the attempt that is on goes on."""
    from console.verbs.control import run_control

    _leave(run_control(Place(config, demo), "pause", run_id, as_json=as_json))


@app.command()
def skip(
    run_id: RunOn = None,
    attempt: Annotated[int | None, typer.Option(help="its number in the run; default: the one that is on")] = None,
    config: Config = None,
    demo: Demo = False,
    as_json: AsJson = False,
) -> None:
    """End an attempt, or do not begin it; the run goes on."""
    from console.verbs.control import run_control

    _leave(run_control(Place(config, demo), "skip", run_id, attempt, as_json=as_json))


@app.command()
def retry(
    attempt: Annotated[int, typer.Argument(help="its number in the run")],
    run_id: RunOn = None,
    config: Config = None,
    demo: Demo = False,
    as_json: AsJson = False,
) -> None:
    """Measure a done attempt again, as a new one at the end of its run; the old one stays."""
    from console.verbs.control import run_control

    _leave(run_control(Place(config, demo), "retry", run_id, attempt, as_json=as_json))


@app.command()
def abort(run_id: RunOn = None, config: Config = None, demo: Demo = False, as_json: AsJson = False) -> None:
    """End a run now: the client ends its requests, servers stop, everything is kept."""
    from console.verbs.control import run_control

    _leave(run_control(Place(config, demo), "abort", run_id, as_json=as_json))


@app.command()
def runs(config: Config = None, demo: Demo = False, as_json: AsJson = False) -> None:
    """List past and present runs."""
    from console.verbs.show import list_runs

    _leave(list_runs(Place(config, demo), as_json=as_json))


@app.command()
def show(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    config: Config = None,
    demo: Demo = False,
    as_json: AsJson = False,
    manifest: Annotated[bool, typer.Option(help="the environment as variables")] = False,
    commands: Annotated[bool, typer.Option(help="every command as executed")] = False,
) -> None:
    """One run: its attempts with their windows and figures."""
    from console.verbs.show import show_run

    _leave(show_run(Place(config, demo), run_id, as_json=as_json, manifest=manifest, commands=commands))


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="one SELECT")],
    config: Config = None,
    demo: Demo = False,
    as_json: AsJson = False,
) -> None:
    """Query the store, live or past."""
    from console.verbs.show import run_sql

    _leave(run_sql(Place(config, demo), query, as_json=as_json))


@app.command()
def jobs(
    config: Config = None,
    demo: Demo = False,
    as_json: AsJson = False,
    reap: Annotated[
        bool, typer.Option(help="remove the folders of finished jobs; what still runs is left alone")
    ] = False,
) -> None:
    """Detached jobs on the nodes."""
    from console.verbs.jobs import run_jobs

    _leave(run_jobs(Place(config, demo), reap=reap, as_json=as_json))


@app.command()
def up(deployment: str, config: Config = None, demo: Demo = False, as_json: AsJson = False) -> None:
    """Start a deployment without a benchmark, and wait until it is ready."""
    from console.verbs.updown import run_up

    _leave(run_up(Place(config, demo), deployment, as_json=as_json))


@app.command()
def down(deployment: str, config: Config = None, demo: Demo = False, as_json: AsJson = False) -> None:
    """Stop a deployment."""
    from console.verbs.updown import run_down

    _leave(run_down(Place(config, demo), deployment, as_json=as_json))


@app.command()
def restart(deployment: str, config: Config = None, demo: Demo = False, as_json: AsJson = False) -> None:
    """Stop a deployment if it is up, and start it anew. Refused while a run uses it."""
    from console.verbs.updown import run_restart

    _leave(run_restart(Place(config, demo), deployment, as_json=as_json))


@app.command()
def watch(
    deployment: Annotated[str | None, typer.Argument(help="its nodes and server; default: all nodes")] = None,
    lasts: Annotated[str | None, typer.Option("--for", help="e.g. 10m; default: until Ctrl-C, 24h at most")] = None,
    config: Config = None,
    demo: Demo = False,
    as_json: AsJson = False,
    foreground: Foreground = False,
    why: Annotated[str | None, typer.Option(help="what you look for, for the notes")] = None,
) -> None:
    """Metrics and logs with no run: of every node, and of every server that is up."""
    from console.verbs.watch import run_watch

    _leave(run_watch(Place(config, demo), deployment, lasts, as_json=as_json, foreground=foreground, why=why))


@app.command()
def trust(
    node: Annotated[str, typer.Argument(help="a node, or before there is a configuration a host that `ssh` knows")],
    config: Config = None,
    demo: Demo = False,
    yes: Annotated[
        list[str] | None,
        typer.Option("--yes", metavar="FINGERPRINT", help="accept this key and no other (one for each hop)"),
    ] = None,
    ssh_config: Annotated[Path | None, typer.Option("--ssh-config", help="for a host; default ~/.ssh/config")] = None,
) -> None:
    """Show a node's host key and, if accepted, remember it."""
    from console.trust import run_trust
    from console.verbs import say

    _leave(run_trust(Place(config, demo), node, yes or [], str(ssh_config) if ssh_config else None, say))


@app.command()
def read(
    files: Annotated[list[Path] | None, typer.Argument()] = None,
    kind: Annotated[str | None, typer.Option("--as", help="take the files for this kind")] = None,
    kinds: Annotated[bool, typer.Option("--kinds", help="list the kinds, their columns and event names")] = False,
    as_json: AsJson = False,
) -> None:
    """Read captured output offline: rows, events, gate verdict."""
    from console.read import read as read_files

    _leave(read_files(files or [], kind=kind, json_out=as_json, list_kinds=kinds))


@app.command()
def export(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="with --verify also the folder of a tree")],
    verify: Annotated[
        bool, typer.Option("--verify", help="compare the tree with its checksums, write nothing")
    ] = False,
    to: Annotated[Path | None, typer.Option(help="a copy in this folder too")] = None,
    config: Config = None,
    demo: Demo = False,
    as_json: AsJson = False,
) -> None:
    """The results tree of a run, complete: tables, logs, commands, all rows, checksums."""
    from console.verbs.export import run_export, verify_tree

    place = Place(config, demo)
    if verify:
        if to is not None:
            raise typer.BadParameter("--verify goes without --to")
        _leave(verify_tree(place, run_id, as_json=as_json))
    _leave(run_export(place, run_id, to, as_json=as_json))


@app.command(name="import")
def import_(
    files: list[Path],
    config: Config = None,
    demo: Demo = False,
    force: Annotated[bool, typer.Option("--force", help="take a results tree that has changed too")] = False,
    as_json: AsJson = False,
) -> None:
    """Launch scripts, docker commands, compose files, Kubernetes manifests -> a deployment. Nothing is executed.

    A folder is a results tree: its run goes into the store.
    """
    from console.importing import import_file

    if len(files) == 1 and files[0].is_dir():
        from console.verbs.export import import_run

        _leave(import_run(Place(config, demo), files[0], force=force, as_json=as_json))
    _leave(import_file(files, json_out=as_json))


@app.command()
def analyze(
    files: list[Path],
    as_json: AsJson = False,
    top: Annotated[int, typer.Option(min=1, help="rows of the kernel tables")] = 15,
    families: Annotated[Path | None, typer.Option(help="a file of your own kernel family rules")] = None,
    window: Annotated[
        tuple[float, float] | None, typer.Option(help="START END in ms since a rank's first event")
    ] = None,
    diff: Annotated[bool, typer.Option(help="compare two files")] = False,
    scenarios: Annotated[bool, typer.Option(help="families x files, with shares and time per token")] = False,
    html: Annotated[Path | None, typer.Option(help="write the report as one HTML file too")] = None,
    perfetto: Annotated[Path | None, typer.Option(help="write the window as a trace for Perfetto")] = None,
    columns: Annotated[bool, typer.Option(help="keep columnar files beside large traces")] = True,
    tui: Annotated[
        bool, typer.Option("--tui", help="on screen: bars, tables and a timeline down to the events")
    ] = False,
) -> None:
    """Analyse torch traces or nsys exports offline: where the time goes, in parts that add up."""
    if tui:
        from console.profile_app import show_profile

        if as_json or window or diff or html or perfetto:
            raise typer.BadParameter("--tui goes without --json, --window, --diff, --html and --perfetto")
        _leave(show_profile(files, families, columns=columns))
    from console.analyze import analyze as analyze_files

    _leave(
        analyze_files(
            files,
            json_out=as_json,
            top=top,
            families=families,
            window=window,
            diff=diff,
            scenarios=scenarios,
            html=html,
            perfetto=perfetto,
            columns=columns,
        )
    )


def main() -> None:
    """Entry of the `twinrail` script. Known errors end in one line that says what to do; exit codes as documented."""
    from console.verbs import fail_code, out_json, plain_error, say_error

    try:
        app(prog_name="twinrail")
    except Exception as e:
        code = fail_code(e)
        if code is None:
            raise
        say_error(e)
        if "--json" in sys.argv:  # whoever parses stdout finds one document there, also for a failure
            out_json({"error": plain_error(e), "exit": code})
        sys.exit(code)
