"""Commands about this installation: backends, conformance, config."""

from __future__ import annotations

from typing import Annotated

import typer

from collage_evo.cli.app import Debug, Json, Set, command
from collage_evo.codec import to_json
from collage_evo.errors import ConfigError
from collage_evo.report.console import PlainConsole


@command()
def backends(as_json: Json = False, debug: Debug = False) -> None:
    """List all backends, and what installs the missing ones."""
    from collage_evo.backends.registry import survey
    from collage_evo.hardware.slots import describe_quota
    from collage_evo.report.listings import print_backends

    entries = survey()
    if as_json:
        print(to_json({entry.name: entry for entry in entries}, indent=1))
    else:
        print_backends(entries, PlainConsole())
        if quota := describe_quota():
            PlainConsole().print(quota, soft_wrap=True)


@command()
def conformance(
    backend: Annotated[str, typer.Argument(metavar="BACKEND", help="Name of a backend, as backends lists it.")],
    examples: Annotated[
        int, typer.Option(min=0, metavar="COUNT", help="Random models for each family of operators.")
    ] = 8,
    seconds: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Begin no new case after so many seconds.")
    ] = 600.0,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Check that a backend meets its contract.

    Exit code 1: a case fails.
    """
    from collage_evo.backends.registry import get_backend
    from collage_evo.report.listings import conformance_json, print_conformance
    from collage_evo.testing.conformance import Effort, check_backend

    report = check_backend(get_backend(backend), effort=Effort(examples=examples, seconds=seconds))
    if as_json:
        print(to_json(conformance_json(report), indent=1))
    else:
        print_conformance(report, PlainConsole())
    return 1 if report.failures else 0


@command(name="config")
def show_config(
    source: Annotated[str | None, typer.Argument(metavar="MODEL", help="As for run.")] = None,
    overrides: Set = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema, every key explained.")] = False,
    debug: Debug = False,
) -> None:
    """Print a configuration with the value of every key."""
    from collage_evo.config import Config, dump_config, load_config

    if (schema or source is None) and (source is not None or overrides):
        raise ConfigError("--schema describes every configuration: give either --schema or a configuration")
    if schema or source is None:
        print(to_json(Config.model_json_schema(), indent=1))
    else:
        print(dump_config(load_config(source, overrides or ())), end="")
