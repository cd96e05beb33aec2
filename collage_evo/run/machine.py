"""What a configuration asks of this machine: cores, threads, a processor's level, an accelerator, backends."""

from __future__ import annotations

import os

from collage_evo.backends.base import Backend
from collage_evo.backends.select import require_accelerator, require_tuners, select_backends
from collage_evo.config import Config
from collage_evo.errors import ConfigError, InputError
from collage_evo.hardware.levels import SWITCH
from collage_evo.hardware.processor import level
from collage_evo.hardware.slots import describe_quota, usable_cores


def require_machine(config: Config) -> None:
    """Require that this machine, and this process on it, has all that a run of ``config`` asks for.

    Raises:
        CollageError: something is not there.
    """
    chosen_backends(config)
    require_processor(config)


class Backends(tuple[Backend, ...]):
    """Backends that take part in a run."""


def chosen_backends(config: Config) -> Backends:
    """The backends that take part. Raises as :func:`open_run` does."""
    if config.search.objective == "throughput" and config.target.accelerated:
        raise ConfigError(
            f"search.objective: throughput is of the processor's cores, not of {config.target.device}: leave it at "
            "latency, or set target.device=cpu"
        )
    require_accelerator(config.target)
    backends = select_backends(config.backends.use, config.target)
    require_tuners(backends, config.backends.trials)
    return Backends(backends)


def usable(config: Config) -> tuple[int, ...]:
    """The cores that a run measures on.

    Raises:
        InputError: cores or threads that the configuration asks for are not there.
    """
    here, allowed, target = usable_cores(), os.sched_getaffinity(0), config.target
    if missing := set(target.cores) - allowed:
        raise InputError(f"target.cores: core {min(missing)} is not usable here; usable are {sorted(allowed)}")
    cores, quota = tuple(target.cores) or here, f" ({text})" if (text := describe_quota()) else ""
    if len(cores) > len(here):
        raise InputError(f"target.cores: {len(cores)} cores; name at most {len(here)}{quota}")
    if target.threads > len(cores):
        raise InputError(
            f"target.threads: {target.threads} threads on {len(cores)} core(s); use at most as many{quota}"
        )
    return cores


def require_processor(config: Config) -> None:
    """Require that cores and threads of ``config`` are there, and that this process is held to its processor, if
    that is set.

    Raises:
        InputError: they are not, or it is not: libraries may have been imported, which use all instructions.
    """
    usable(config)
    processor = config.target.processor
    if processor not in (None, level()):
        raise InputError(
            f"target.processor is {processor}, but this process is not restricted to it: use the command line, or "
            f"set {SWITCH}={processor} before collage_evo is imported"
        )
