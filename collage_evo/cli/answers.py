"""Commands about a run that ended: show, pick, explain, export."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from collage_evo.cli.app import Debug, Json, Quiet, Trust, command
from collage_evo.cli.held import hold_process
from collage_evo.codec import to_json
from collage_evo.errors import ConfigError, InputError
from collage_evo.modules import shell_python
from collage_evo.report.console import PlainConsole
from collage_evo.report.places import COMMAND

if TYPE_CHECKING:
    from collage_evo.export import Form
    from collage_evo.report.finished import Finished

Run = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of a run that ended.")]


def print_answer(directory: Path, profiles: Sequence[Finished], as_json: bool) -> None:
    """Print the results of the run in ``directory``."""
    from collage_evo.report.terminal import print_summary

    if as_json:
        print((directory / "result.json").read_text())
    else:
        print_summary(profiles, directory, PlainConsole())


@command()
def show(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of a run that ended, or a package.")],
    tables: Annotated[bool, typer.Option("--all", help="Print all tables: times, errors, regions, memory.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the plot of latency against error to this SVG file."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the summary of a run, or the variants of a package."""
    from collage_evo.report.finished import RESULT, read_finished
    from collage_evo.report.html import write_picture
    from collage_evo.report.listings import print_package
    from collage_evo.report.so_far import print_so_far
    from collage_evo.report.terminal import print_profiles
    from collage_evo.runtime.package import is_package, read_package

    if is_package(run):
        if tables or picture is not None:
            raise ConfigError(f"{run} is a package, without tables and picture: give the run that made a variant")
        package = read_package(run)
        if as_json:
            print(to_json(package, indent=1))
        else:
            print_package(package)
        return
    if picture is None and not (run / RESULT).exists() and print_so_far(run, as_json):
        return
    finished = read_finished(run)
    if picture is not None:
        write_picture(picture, finished[0].result)
    if tables and not as_json:
        print_profiles(finished, PlainConsole())
    print_answer(run, finished, as_json)


@command()
def pick(
    directory: Run,
    budget: Annotated[str, typer.Option("--budget", metavar="ERROR", help="Largest error, or exact: float32 only.")],
    trust: Trust = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find the answer of a run for another error budget.

    It makes no new search and does not change the run's answer.
    """
    from collage_evo.commands.pick import pick_answer
    from collage_evo.report.progress import reporter
    from collage_evo.run.recorded import ended_run

    hold_process(ended_run(directory))
    with reporter(quiet) as progress:
        picked = pick_answer(directory, budget, progress, trust)
    print_answer(picked.directory, (picked,), as_json)


@command()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of a run.")],
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Name of a node in the model file.")
    ] = None,
    region: Annotated[
        int | None, typer.Option("--region", metavar="NUMBER", help="Number of a region of the run's answer.")
    ] = None,
    pruning: Annotated[
        bool, typer.Option("--pruning", help="List what was not tried or given up, and by which rule.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With --node: also list unmeasured matches, and every refusal.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List which backends can run a node or a region, and why not.

    The list has the costs that the run measured; --pruning lists what it pruned.
    """
    from collage_evo.commands.explain import explain_node, explain_pruning, explain_region
    from collage_evo.report.explain import (
        Explanation,
        PruningExplanation,
        RegionExplanation,
        print_explanation,
        print_pruning,
        print_region,
    )
    from collage_evo.run.directory import reopen_run

    if not run.is_dir():
        raise InputError(f"{run} is no run directory: make a run with {COMMAND} run MODEL, then explain that run")
    hold_process(reopen_run(run))
    explanation: Explanation | RegionExplanation | PruningExplanation
    if node is not None and region is None and not pruning:
        explanation = explain_node(run, node)
    elif region is not None and node is None and not pruning:
        explanation = explain_region(run, region)
    elif pruning and node is None and region is None:
        explanation = explain_pruning(run)
    else:
        raise ConfigError("explain needs one of --node NAME, --region NUMBER of a run's answer, and --pruning")
    if as_json:
        print(to_json(explanation, indent=1))
    elif isinstance(explanation, Explanation):
        print_explanation(explanation, PlainConsole(), everything)
    elif isinstance(explanation, RegionExplanation):
        print_region(explanation, PlainConsole())
    else:
        print_pruning(explanation, PlainConsole())


@command()
def export(
    run: Run,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Folder for the answer as plain files.")
    ] = None,
    form: Annotated[
        Literal["plain", "onnxruntime"],
        typer.Option("--form", help="Form of --to; onnxruntime adds a model for onnxruntime-ep-collage."),
    ] = "plain",
    onnx: Annotated[
        Path | None, typer.Option("--onnx", metavar="FILE", help="File for the model with the backend of each node.")
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option("--variant", metavar="NAME", help="Variant of a package (default: the one for this processor)."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the answer as files for use without this package.

    --to writes files that its libraries load; --onnx writes an ONNX file whose nodes carry their region and backend,
    for viewers such as Netron.
    """
    from collage_evo.commands.pack import run_of
    from collage_evo.runtime.package import is_package

    if (to is None) == (onnx is None):
        raise ConfigError("export needs a destination: --to FOLDER for plain files, or --onnx FILE for the model")
    if onnx is not None and form != "plain":
        raise ConfigError(f"--form {form} goes with --to FOLDER, not with --onnx")
    if is_package(run):
        run = run_of(run, variant)
    elif variant is not None:
        raise ConfigError(f"--variant is one of a package, and {run} is none: leave it out")
    if to is not None:
        _export_files(run, to, form, as_json)
    elif onnx is not None:
        _export_onnx(run, onnx, as_json)


def _export_files(run: Path, to: Path, form: Form, as_json: bool) -> None:
    from collage_evo.export import FORMS
    from collage_evo.export.context_model import SOURCE
    from collage_evo.export.plain import MODEL

    done = FORMS[form](run, to)
    if as_json:
        print(to_json(done, indent=1))
        return
    for name, shapes in done.folders.items():
        print(f"{name}: {shapes}; {done.checks[name]}")
    if form == "onnxruntime":
        print(f"written: {Path(done.directory, MODEL)}, for sessions of ONNX Runtime with the provider")
        print(f"{SOURCE} of the package onnxruntime-ep-collage (plugins/onnxruntime_ep)")
        return
    if done.one_file:
        print(f"one file, {done.one_file}")
    print(f"written: {done.directory}; README.md says how to load it. To check it (--cpp: in C++ too):")
    for name in done.folders:
        print(f"    {shell_python()} {shlex.quote(str(Path(done.directory, name, 'check.py')))}")


def _export_onnx(run: Path, onnx: Path, as_json: bool) -> None:
    from collage_evo.run.annotated import export_onnx

    if onnx.exists():
        raise InputError(f"{onnx} exists already: choose another --onnx, or remove it")
    done = export_onnx(run, onnx)
    if as_json:
        print(to_json(done, indent=1))
        return
    counts = ", ".join(f"{name} {count}" for name, count in done.nodes.items())
    print(f"written: {done.file}, nodes in {done.regions} region(s): {counts}; see them in Netron")
