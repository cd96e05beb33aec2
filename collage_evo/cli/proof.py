"""Commands that measure an answer on this machine again: compare, recheck."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collage_evo.cli.app import ArtifactPath, Data, Debug, Json, Trust, app
from collage_evo.codec import to_json, to_plain
from collage_evo.report.console import PlainConsole

Against = Annotated[
    Path | None, typer.Option("--against", metavar="FILE", help="The model's own ONNX file (default: the run's).")
]


@app.command()
def compare(
    artifact: ArtifactPath,
    against: Against = None,
    data: Data = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="B", help="Largest error (default: the artifact's budget).")
    ] = None,
    at_least: Annotated[
        float, typer.Option("--at-least", min=0.01, help="Required speed-up over each library.")
    ] = 1.0,
    libraries: Annotated[
        list[str] | None, typer.Option("--library", metavar="NAME", help="Compare with this library; repeatable.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Measuring time for each profile of shapes.")] = 30.0,
    trust: Trust = False,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Time an artifact against each library with its defaults.

    Exit code 4: it is slower; 5: it exceeds the budget, or does not run on this machine.
    """
    from collage_evo.accuracy.budget import budget_option
    from collage_evo.commands.compare import compare as compare_one
    from collage_evo.commands.compared import subjects
    from collage_evo.report.comparison import print_comparison, verdict
    from collage_evo.report.progress import reporter

    allowed, code = None if budget is None else budget_option(budget), 0
    comparisons = []
    for compared in subjects(artifact, against, data, trust):
        with reporter() as progress:
            comparisons.append(compare_one(compared, progress, allowed, libraries or (), seconds, at_least))
        code = max(code, comparisons[-1].exit_code(at_least))
    if as_json:
        records = [
            {**to_plain(one), "verdict": verdict(one, at_least), "exit_code": one.exit_code(at_least)}
            for one in comparisons
        ]
        print(to_json(records[0] if len(records) == 1 else records, indent=1))
    else:
        for one in comparisons:
            print_comparison(one, at_least, PlainConsole())
    return code


@app.command()
def recheck(
    artifact: ArtifactPath,
    against: Against = None,
    data: Data = None,
    seconds: Annotated[float, typer.Option(min=1, help="Measuring time for each profile of shapes.")] = 30.0,
    trust: Trust = False,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Measure an answer and its front again, without a search.

    Exit code 5: the answer exceeds the budget, or does not run on this machine.
    """
    from collage_evo.commands.compared import subjects
    from collage_evo.commands.recheck import recheck as recheck_one
    from collage_evo.commands.recheck import write_rechecked
    from collage_evo.report.comparison import OVER_BUDGET, print_rechecked
    from collage_evo.report.progress import reporter

    profiles = subjects(artifact, against, data, trust)
    with reporter() as progress:
        rechecked = [recheck_one(compared, progress, seconds) for compared in profiles]
    written = write_rechecked(profiles[0], rechecked, artifact)
    if as_json:
        print(written.read_text())
    else:
        for one in rechecked:
            print_rechecked(one, PlainConsole())
        print(f"written: {written}")
    return 0 if all(one.answer and one.answer.now and one.answer.now.feasible for one in rechecked) else OVER_BUDGET
