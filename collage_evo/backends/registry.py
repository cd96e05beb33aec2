"""Finds backends by name: takes the entry points of every installed distribution, gives Backend objects."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from collage_evo.backends.base import Backend, Probe
from collage_evo.errors import ConfigError, UnavailableError

GROUP = "collage_evo.backends"
"""The entry-point group: ``name = "package.module:Class"``."""

_registered: dict[str, type[Backend]] = {}


def register_backend(backend: type[Backend]) -> type[Backend]:
    """Make ``backend`` known under its name, for scripts and tests; also usable as a decorator.

    Known in this process only. Builds and measurements run in worker processes, which find backends through
    entry points: a backend that takes part in a search must be installed with one.

    Raises:
        ConfigError: another class has the name already.
    """
    name = backend.name
    if _registered.get(name, backend) is not backend or name in _entry_points():
        raise ConfigError(f"a backend named {name!r} is there already: choose another name")
    _registered[name] = backend
    return backend


def backend_names() -> tuple[str, ...]:
    """Every backend that is installed or registered, usable here or not, in alphabetical order."""
    return tuple(sorted({*_entry_points(), *_registered}))


@cache
def get_backend(name: str) -> Backend:
    """The backend called ``name``, always the same object. Whether it can be used here is ``probe``'s to say.

    Raises:
        ConfigError: no backend has that name.
        UnavailableError: its package is installed but broken.
    """
    if name in _registered:
        return _registered[name]()
    entry = _entry_points().get(name)
    if entry is None:
        near = difflib.get_close_matches(name, backend_names(), n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ConfigError(f"no backend {name!r}{hint}; there are: {', '.join(backend_names())}")
    try:
        backend = entry.load()()
    except Exception as error:
        # A plugin is foreign code: whatever it raises, the message must name it.
        raise UnavailableError(
            f"backend {name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(backend, Backend):
        raise UnavailableError(f"backend {name!r} ({entry.value}) is not a collage_evo Backend")
    return backend


def probe_all() -> list[tuple[str, Probe]]:
    """Each backend's name and whether it can be used here; a broken plugin is a Probe with its reason."""
    return [(name, _probe(name)) for name in backend_names()]


def _probe(name: str) -> Probe:
    try:
        return get_backend(name).probe()
    except UnavailableError as error:
        return Probe(False, reason=str(error))
    except Exception as error:
        return Probe(False, reason=f"probing failed: {type(error).__name__}: {error}")


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
