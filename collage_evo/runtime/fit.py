"""Fit of an artifact's target to this machine: its processor, its threads, its accelerator."""

from __future__ import annotations

import os
from pathlib import Path

from collage_evo.errors import UnavailableError
from collage_evo.hardware.levels import LEVELS, SWITCH
from collage_evo.hardware.processor import Processor, this_machine
from collage_evo.hardware.target import Target


def require_fit_for(directory: Path, target: Target) -> None:
    """Require that this machine runs what was made for ``target``, as the artifact in ``directory`` was.

    Raises:
        UnavailableError: it lacks instructions, threads or the accelerator.
    """
    here, needed = this_machine(), target.machine
    if needed.architecture not in (here.architecture, ""):
        raise UnavailableError(
            f"{directory} was made for {needed.architecture}, this machine is {here.architecture}: "
            "run the search on this machine"
        )
    if missing := here.lacks(needed.features):
        raise UnavailableError(
            f"{directory} was made on a CPU with {', '.join(missing)}, which this one lacks: "
            "run the search on this machine"
        )
    if target.accelerated:
        _require_accelerator(directory, target)
    if target.threads > (cores := os.cpu_count() or 1):
        raise UnavailableError(
            f"{directory} was made for {target.threads} threads, this machine has {cores} cores: "
            "run the search on this machine"
        )


def why_refused(made_on: Processor) -> str:
    """Why a library may refuse here what it compiled on ``made_on``, and what to do; empty if the two are alike, or
    nothing was compiled for the instructions of one processor.

    Compiled models of OpenVINO run with the instructions for which they were compiled only, not with more.
    """
    here = this_machine()
    other = here.other_than(made_on) if made_on.features else ""
    holds = [
        f"start Python with {SWITCH}={level}"
        for level, features in LEVELS.items()
        if not here.lacks(features) and not here.held_to(level).differences(made_on)
    ]
    return f"{other}; {', or '.join([*holds, 'run the search on this processor'])}" if other else ""


def _require_accelerator(directory: Path, target: Target) -> None:
    """Require the artifact's accelerator: it does not run code for every other one."""
    made_for = target.accelerator or target.device
    try:
        accelerator = target.served_by
        fits = accelerator.runs_code_for(target.accelerator)
    except UnavailableError as missing:
        raise UnavailableError(
            f"{directory} was made for {made_for}, which is not here ({missing}): "
            "load it there, or run the search here with -s target.device=cpu"
        ) from missing
    if not fits:
        raise UnavailableError(
            f"{directory} was made for {made_for}, here is {accelerator.describe()}: run the search on this machine"
        )
