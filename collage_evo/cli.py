"""The command line: ``python -m collage_evo run | resume | pick | tune | sweep | exec | ...``."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from collage_evo.errors import CollageError, ConfigError, printable, system_errors_told
from collage_evo.report.console import PlainConsole

if TYPE_CHECKING:
    from collage_evo.config import Config
    from collage_evo.run.profiles import ProfileResult

INTERRUPTED = 130
"""Exit code of who was stopped by Ctrl-C."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Set = Annotated[
    list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="Override one key of the configuration.")
]
ShapesOption = Annotated[
    str | None, typer.Option("--shapes", metavar="SHAPES", help="'x: [1, 3, 48, 320]', or auto: the smallest.")
]
Data = Annotated[
    str | None, typer.Option("--data", metavar="DATA", help="Your own inputs, as .npz, folder or file.py:function.")
]
Budget = Annotated[
    str | None, typer.Option("--budget", metavar="B", help="Largest error of the answer: 0.02, 1%, or exact.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Run directory (default: runs/NAME).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that is in the directory.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Delete the run that is in the directory.")]


@app.command()
def run(
    source: Annotated[str, typer.Argument(metavar="CONFIG", help="A YAML file, a .onnx file or builtin:NAME.")],
    overrides: Set = None,
    shapes: ShapesOption = None,
    data: Data = None,
    budget: Budget = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Search, compile, verify and report."""
    from collage_evo.api import optimize
    from collage_evo.config import load_config
    from collage_evo.run.directory import run_directory

    config = load_config(source, [*(overrides or ()), *_of_shapes(shapes)])
    directory = run_directory(config, source, out)
    result = optimize(
        config.model.source,
        data=data,
        budget=budget,
        config=config,
        out=directory,
        resume=resume,
        overwrite=overwrite,
    )
    _print_result(directory, result.profiles, as_json)


@app.command(name="resume")
def resume_run(
    directory: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of a run that was stopped.")],
    overrides: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Go on after a stop, a crash or a kill, with the saved configuration; -s may only enlarge the budget."""
    from collage_evo.run.directory import kind_of_run, reopen_run

    config, kind = reopen_run(directory, overrides or ()), kind_of_run(directory)
    if kind == "sweep":
        _run_sweep(directory, config, as_json)
    elif kind == "tune":
        _run_tune(directory, config, as_json)
    else:
        _resume_pipeline(directory, config, as_json)


@app.command()
def sweep(
    source: Annotated[str, typer.Argument(metavar="CONFIG", help="A configuration with a sweep section.")],
    overrides: Set = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Whole runs over any keys of the configuration, chosen by Optuna (grid, random or TPE)."""
    directory, config = _begin(source, overrides, out, resume, overwrite, "sweep")
    _run_sweep(directory, config, as_json)


@app.command()
def tune(
    source: Annotated[str, typer.Argument(metavar="CONFIG", help="A YAML file, a .onnx file or builtin:NAME.")],
    overrides: Set = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Tune the genetic search with Optuna, on simulated targets learned from the model's own measurements."""
    directory, config = _begin(source, overrides, out, resume, overwrite, "tune")
    _run_tune(directory, config, as_json)


@app.command(name="exec")
def execute(
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="A .collage directory.")],
    feeds: Annotated[Path | None, typer.Option("--inputs", help="An .npz with one array for each input.")] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Untimed runs first.")] = 3,
    repeat: Annotated[int, typer.Option(min=1, help="Timed runs.")] = 20,
    profile: Annotated[bool, typer.Option("--profile", help="Time of each region and transition.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run an artifact: time it and print the outputs' shapes."""
    from collage_evo.report.artifact import print_bench
    from collage_evo.runtime.bench import bench_artifact, keep_to_cores

    keep_to_cores(artifact)
    reports = bench_artifact(artifact, feeds, warmup, repeat)
    if as_json:
        found = [asdict(report) for report in reports]
        print(json.dumps(found[0] if len(found) == 1 else found, indent=1))
        return
    for report in reports:
        print_bench(report, profile)


@app.command()
def inspect(
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="A .collage directory.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what is inside an artifact, after checking every file."""
    from collage_evo.report.artifact import print_artifact
    from collage_evo.runtime.artifact import MANIFEST, read_artifact

    found = read_artifact(artifact)
    if as_json:
        print((artifact / MANIFEST).read_text())
        return
    print_artifact(found)


@app.command()
def backends(as_json: Json = False, debug: Debug = False) -> None:
    """List every backend known, and for those not usable why and what installs them."""
    from collage_evo.backends.registry import survey
    from collage_evo.report.backends import print_backends

    found = survey()
    if as_json:
        print(json.dumps({entry.name: asdict(entry) for entry in found}, indent=1))
    else:
        print_backends(found, PlainConsole())


@app.command()
def conformance(
    backend: Annotated[str, typer.Argument(metavar="BACKEND", help="Its name, as in: backends.")],
    examples: Annotated[int, typer.Option(min=0, help="Random models of each family of operators.")] = 8,
    seconds: Annotated[float, typer.Option(min=1, help="No new case is begun after that.")] = 600.0,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Check that a backend does what the contract asks; ends with 1 if some case fails."""
    from collage_evo.backends.registry import get_backend
    from collage_evo.report.conformance import conformance_json, print_conformance
    from collage_evo.testing.conformance import Effort, check_backend

    report = check_backend(get_backend(backend), effort=Effort(examples=examples, seconds=seconds))
    if as_json:
        print(json.dumps(conformance_json(report), indent=1))
    else:
        print_conformance(report, PlainConsole())
    return 1 if report.failures else 0


@app.command()
def explain(
    source: Annotated[str, typer.Argument(metavar="CONFIG", help="As for run, or the directory of a run.")],
    node: Annotated[str | None, typer.Option("--node", help="A node of the model, by its name in the file.")] = None,
    region: Annotated[int | None, typer.Option("--region", help="A region of the run's answer, by number.")] = None,
    overrides: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List who could run a node, or a region of a run's answer, at what measured cost, and why others cannot."""
    from collage_evo.config import load_config
    from collage_evo.report.explain import Explanation, RegionExplanation, print_explanation, print_region
    from collage_evo.run.explain import explain_node, explain_region

    run = Path(source) if Path(source).is_dir() else None
    config = load_config(str(run / "config.yaml") if run else source, overrides or ())
    if (node is None) == (region is None):
        raise ConfigError("explain needs what to explain: --node NAME, or --region NUMBER of a run's answer")
    found: Explanation | RegionExplanation
    if node is not None:
        found = explain_node(config, node, run)
    elif run is not None and region is not None:
        found = explain_region(config, region, run)
    else:
        raise ConfigError("--region is one of a run's answer: give the directory of the run")
    if as_json:
        print(json.dumps(asdict(found), indent=1))
    elif isinstance(found, Explanation):
        print_explanation(found, PlainConsole())
    else:
        print_region(found, PlainConsole())


@app.command()
def pick(
    directory: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of a run that ended.")],
    budget: Annotated[str, typer.Option("--budget", metavar="B", help="Largest error, as 0.01, or exact: float32.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """The answer of a run for another budget of error, without a new search; the run's own answer stays."""
    from collage_evo.report.progress import reporter
    from collage_evo.run.pick import pick_answer

    with reporter() as progress:
        found = pick_answer(directory, budget, progress)
    _print_result(found.directory, (found,), as_json)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of a run that ended.")],
    onnx: Annotated[Path, typer.Option("--onnx", metavar="FILE", help="Where to write the model.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the answer as an ONNX file whose nodes carry their region and backend, for Netron and ONNX Runtime."""
    from collage_evo.report.export import SETTINGS, export_onnx

    done = export_onnx(run, onnx)
    if as_json:
        print(json.dumps(asdict(done), indent=1))
        return
    counts = ", ".join(f"{name} {count}" for name, count in done.nodes.items())
    print(f"written: {done.file}, nodes in {done.regions} region(s): {counts}; see them in Netron")
    if done.settings:
        print(f"in ONNX Runtime: options.add_session_config_entry({SETTINGS!r}, {done.settings!r})")
    for name in done.without_provider:
        print(f"{name} is no execution provider of ONNX Runtime, which will place its nodes as it likes")


@app.command(name="config")
def show_config(
    source: Annotated[str | None, typer.Argument(metavar="CONFIG", help="A configuration to resolve.")] = None,
    overrides: Set = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema with every key explained.")] = False,
    debug: Debug = False,
) -> None:
    """Print the configuration with every key written out, or its schema."""
    from collage_evo.config import Config, dump_config, load_config

    if schema or source is None:
        print(json.dumps(Config.model_json_schema(), indent=1))
    else:
        print(dump_config(load_config(source, overrides or ())), end="")


def _begin(
    source: str, overrides: list[str] | None, out: Path | None, resume: bool, overwrite: bool, kind: str
) -> tuple[Path, Config]:
    """The run directory, made or reopened, and the configuration it keeps."""
    from collage_evo.config import load_config
    from collage_evo.run.directory import run_directory, start_run

    config = load_config(source, overrides or ())
    directory = run_directory(config, source, out)
    return directory, start_run(directory, config, resume=resume, overwrite=overwrite, kind=kind)


def _of_shapes(shapes: str | None) -> list[str]:
    """``--shapes`` as keys of the configuration; the braces of YAML may be left out."""
    if shapes is None:
        return []
    if shapes == "auto":
        return ["model.sizes=smallest"]
    return [f"model.shapes={shapes if shapes.startswith('{') else f'{{{shapes}}}'}"]


def _resume_pipeline(directory: Path, config: Config, as_json: bool) -> None:
    from collage_evo.report.progress import reporter
    from collage_evo.run.profiles import run_profiles

    with reporter() as progress:
        found = run_profiles(config, directory, progress)
    _print_result(directory, found, as_json)


def _print_result(directory: Path, found: Sequence[ProfileResult], as_json: bool) -> None:
    from collage_evo.api import print_results

    if as_json:
        print((directory / "result.json").read_text())
    else:
        print_results(found, PlainConsole())
        print(f"written: {directory}/best.collage, {directory}/result.json, {directory}/report.html")


def _run_tune(directory: Path, config: Config, as_json: bool) -> None:
    from collage_evo.report.progress import reporter
    from collage_evo.run.tune import run_tune

    with reporter() as progress:
        trials = run_tune(config, directory, progress)
    if as_json:
        print(json.dumps(asdict(trials), indent=1))
        return
    trials.print(PlainConsole(), "latency / best seed's")
    print(f"written: the chosen search.ga in {directory}/config.yaml, all trials in {directory}/tune.db, plots")


def _run_sweep(directory: Path, config: Config, as_json: bool) -> None:
    from collage_evo.report.progress import reporter
    from collage_evo.run.sweep import run_sweep

    with reporter() as progress:
        trials = run_sweep(config, directory, progress)
    if as_json:
        print(json.dumps(asdict(trials), indent=1))
        return
    trials.print(PlainConsole(), "speedup" if config.sweep.metric == "speedup" else "ms")
    print(f"written: {directory}/study.db (optuna-dashboard opens it), {directory}/trials/, plots")


def main() -> None:
    """Entry point: errors become one line and an exit code, as the contract of the command line says."""
    debug = "--debug" in sys.argv
    logging.basicConfig(level=logging.DEBUG if debug else logging.ERROR)
    logging.getLogger("collage_evo").setLevel(logging.DEBUG if debug else logging.WARNING)
    # These libraries warn about what this program handles itself.
    for name in ("onnx_ir", "onnxscript", "optuna", "alembic", "matplotlib"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with system_errors_told():
            code = app(standalone_mode=False)
    except CollageError as error:
        if debug:
            raise
        print(printable(f"error: {error}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except TyperException as error:
        print(printable(f"error: {error.format_message().rstrip('.')}; see --help"), file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        _leave()
    if code == INTERRUPTED:  # what typer makes of an interrupt inside a command
        _leave()
    sys.exit(code if isinstance(code, int) else 0)


def _leave() -> NoReturn:
    """End at once: worker pools must not keep a person waiting who pressed Ctrl-C."""
    with contextlib.suppress(OSError):  # who reads it may have been stopped too
        print("stopped; a run goes on with: python -m collage_evo resume RUN_DIR", file=sys.stderr, flush=True)
        sys.stdout.flush()
    os._exit(INTERRUPTED)
