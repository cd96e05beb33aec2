"""Commands about an artifact: exec, inspect, pack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collage_evo.cli.app import ArtifactPath, Debug, Json, command
from collage_evo.codec import to_json


@command(name="exec")
def execute(
    artifact: ArtifactPath,
    feeds: Annotated[
        Path | None,
        typer.Option(
            "--inputs", metavar="FILE", help="An .npz with one array for each input (default: random inputs)."
        ),
    ] = None,
    warmup: Annotated[int, typer.Option(min=0, metavar="COUNT", help="Untimed runs before the timed ones.")] = 3,
    repeat: Annotated[int, typer.Option(min=1, metavar="COUNT", help="Timed runs.")] = 20,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="FILE",
            help="Write a timeline of these runs, with the operators that libraries tell: JSON for ui.perfetto.dev.",
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Time an artifact and its regions, and print output shapes."""
    from collage_evo.report.listings import print_bench
    from collage_evo.report.timeline import write_timeline
    from collage_evo.runtime.artifact import read_artifact
    from collage_evo.runtime.bench import bench_artifact, feeds_of, keep_to_cores, random_feeds
    from collage_evo.runtime.trace import trace_artifact

    keep_to_cores(artifact)
    reports = bench_artifact(artifact, feeds, warmup, repeat)
    if as_json:
        print(to_json(reports[0] if len(reports) == 1 else reports, indent=1))
    else:
        for report in reports:
            print_bench(report)
    if profile is not None:
        from collage_evo.export.sources import namings_of  # needs onnx, which a serving machine lacks

        fed = feeds_of(feeds, artifact) if feeds else random_feeds(read_artifact(artifact).program)
        events = trace_artifact(artifact, fed, repeat, warmup, namings_of(artifact))
        write_timeline(profile, events, "/".join(artifact.absolute().parts[-2:]))
        typer.echo(f"written: {profile}, for ui.perfetto.dev or chrome://tracing", err=True)


@command()
def inspect(artifact: ArtifactPath, as_json: Json = False, debug: Debug = False) -> None:
    """Check every file of an artifact and print its contents."""
    from collage_evo.report.listings import print_artifact
    from collage_evo.runtime.artifact import read_artifact
    from collage_evo.runtime.manifest import MANIFEST
    from collage_evo.runtime.package import select_variant

    selected = select_variant(artifact)
    contents = read_artifact(selected.directory)
    if as_json:
        print((selected.directory / MANIFEST).read_text())
        return
    print_artifact(contents, selected)


@command()
def pack(
    artifacts: Annotated[
        list[Path], typer.Argument(metavar="ARTIFACT...", help="Artifacts or runs of one model.")
    ],
    to: Annotated[
        Path, typer.Option("--to", metavar="FOLDER", help="The package to write, for example model.collage.")
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing package.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a package of answers for several processors.

    collage_evo.load selects the one for its processor.
    """
    from collage_evo.commands.pack import pack_artifacts
    from collage_evo.report.listings import print_package

    done = pack_artifacts(artifacts, to, overwrite)
    if as_json:
        print(to_json(done, indent=1))
        return
    print_package(done.package)
    parts = f"the artifacts by themselves have {done.nbytes_of_parts / 1e6:.3g} MB"
    print(f"written: {to}, {done.nbytes / 1e6:.3g} MB; {parts}")
