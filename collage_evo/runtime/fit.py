"""Fit of an artifact's target to this machine: its processor, its threads, its accelerator."""

from __future__ import annotations

import os
from pathlib import Path

from collage_evo.errors import UnavailableError
from collage_evo.hardware.processor import this_machine
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
    cores = os.cpu_count() or 1
    if target.threads > cores:
        raise UnavailableError(
            f"{directory} was made for {target.threads} threads, this machine has {cores} cores: "
            "run the search on this machine"
        )


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
