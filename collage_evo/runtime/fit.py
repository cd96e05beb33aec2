"""Fit of an artifact's target to this machine: its processor, its threads, its device."""

from __future__ import annotations

import os
from pathlib import Path

from collage_evo.devices.open import open_device
from collage_evo.errors import UnavailableError
from collage_evo.target.gpu import describe_gpu, format_capability
from collage_evo.target.processor import this_machine
from collage_evo.target.target import CPU, Target


def require_fit_for(directory: Path, target: Target) -> None:
    """Require that this machine runs what was made for ``target``, as the artifact in ``directory`` was.

    Raises:
        UnavailableError: it lacks instructions, threads or the device.
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
    if target.device != CPU:
        _require_device(directory, target)
    cores = os.cpu_count() or 1
    if target.threads > cores:
        raise UnavailableError(
            f"{directory} was made for {target.threads} threads, this machine has {cores} cores: "
            "run the search on this machine"
        )


def _require_device(directory: Path, target: Target) -> None:
    """Require the artifact's device and compute capability: code for another capability does not run."""
    made_for = target.accelerator or target.device
    try:
        open_device(target.device)
    except UnavailableError as missing:
        raise UnavailableError(
            f"{directory} was made for {made_for}, which is not here ({missing}): "
            "load it there, or run the search here with -s target.device=cpu"
        ) from missing
    if format_capability(describe_gpu()) != format_capability(target.accelerator):
        raise UnavailableError(
            f"{directory} was made for {made_for}, here is {describe_gpu()}: run the search on this machine"
        )
