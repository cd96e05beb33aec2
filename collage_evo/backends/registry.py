"""Registry of backends by name, from the entry points of installed distributions and from code."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from collage_evo.backends.base import Backend, Probe
from collage_evo.backends.probing import probe_elsewhere
from collage_evo.backends.variants import Variant
from collage_evo.errors import ConfigError, UnavailableError

__all__ = ["backend_names", "get_backend", "probe_all", "register_backend", "survey"]
GROUP = "collage_evo.backends"
"""The entry-point group: ``name = "package.module:Class"``."""
EXTENSIONS = "collage_evo.extended_backends"
"""The group of classes that derive from a backend of another package, take its name, and add variants to it."""

_registered: dict[str, type[Backend]] = {}


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class Origin:
    """Module and folder from which another process imports the class of a registered backend."""

    folder: str
    """Folder that must be on the import path."""
    module: str
    name: str


def register_backend(backend: type[Backend]) -> type[Backend]:
    """Register ``backend`` under its name, for scripts and notebooks; also usable as a decorator.

    The measuring processes of a search that this process starts register it too: they import its module.

    Raises:
        ConfigError: another class has the name already, or the class is in no module that can be imported.
    """
    name = backend.name
    if _registered.get(name, backend) is not backend or name in _entry_points():
        raise ConfigError(f"a backend named {name!r} is registered already: choose another name")
    require_importable(backend)
    _registered[name] = backend
    return backend


def require_importable(backend: type[Backend]) -> None:
    """Make sure that another process can import the class.

    Raises:
        ConfigError: it is defined in a script, a notebook or a function.
    """
    if backend.__module__ == "__main__" or "." in backend.__qualname__:
        raise ConfigError(
            f"backend {backend.name!r}: other processes must be able to import {backend.__qualname__}; move it to "
            "the top level of a file of its own (in a notebook: %%writefile my_backend.py) and import it from there"
        )


def registered_origins() -> tuple[Origin, ...]:
    """The origins of all backends registered here."""
    return tuple(_origin(backend) for backend in _registered.values())


def register_from(origins: Iterable[Origin]) -> None:
    """Register here the backends that another process had registered."""
    for origin in origins:
        if origin.folder not in sys.path:
            sys.path.append(origin.folder)
        register_backend(getattr(importlib.import_module(origin.module), origin.name))


def _origin(backend: type[Backend]) -> Origin:
    module = sys.modules[backend.__module__]
    path = Path(str(module.__file__)).absolute()
    depth = module.__name__.count(".") + (path.stem == "__init__")
    return Origin(str(path.parents[depth]), module.__name__, backend.__name__)


def backend_names() -> tuple[str, ...]:
    """Every backend that is installed or registered, usable here or not, in alphabetical order."""
    return tuple(sorted({*_entry_points(), *_registered}))


@cache
def get_backend(name: str) -> Backend:
    """The backend called ``name``, always the same object. ``probe`` checks whether it can be used here.

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
        with contextlib.redirect_stdout(sys.stderr):  # standard output is the command's own, and may be JSON
            backend = entry.load()()
    except (Exception, SystemExit) as error:
        # A plugin is foreign code and may raise anything: the message must name it.
        raise UnavailableError(
            f"backend {name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(backend, Backend):
        raise UnavailableError(f"backend {name!r} ({entry.value}) is not a collage_evo Backend")
    return backend


def device_of(backend: str, variant: str) -> str:
    """The device of a variant. Raises as :func:`get_backend` and :meth:`Backend.variant` do."""
    return get_backend(backend).variant(variant).device


def on_host(backend: str, variant: str) -> bool:
    """Whether a variant runs in the host's memory. Raises as :func:`device_of`."""
    return get_backend(backend).variant(variant).on_host


def probe_all() -> list[tuple[str, Probe]]:
    """Each backend's name and whether it can be used here; a broken plugin is a Probe with its reason."""
    return [(name, probe_backend(name)) for name in backend_names()]


@dataclass(frozen=True)
class Entry:
    """One backend for a listing: its class, its variants, or the reason why it cannot be used.

    ``devices``: those on which at least one variant runs here; for an unusable backend those that it could run on.
    ``device_of``: by variant. ``declined``: by variant why it cannot run here. ``extra``: the optional dependency of
    collage-evo that installs it; empty for a backend from elsewhere.
    """

    name: str
    origin: str
    available: bool
    version: str = ""
    devices: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    reason: str = ""
    extra: str = ""
    device_of: Mapping[str, str] = field(default_factory=dict)
    declined: Mapping[str, str] = field(default_factory=dict)


def survey() -> list[Entry]:
    """Every backend known, usable here or not; a broken plugin is an entry with its reason."""
    return [_entry(name, probe) for name, probe in probe_all()]


def _entry(name: str, probe: Probe) -> Entry:
    backend: Backend | None = None
    with contextlib.suppress(UnavailableError):
        backend = get_backend(name) if probe.available or name not in _foreign() else None
    if backend is None:
        return Entry(name, _entry_points()[name].value, False, reason=probe.reason)
    kind = type(backend)
    origin = f"{kind.__module__}:{kind.__qualname__}"
    device_of = {variant.name: variant.device for variant in backend.variants}
    reasons = {v.name: _declines(backend, v) for v in backend.variants} if probe.available else {}
    declined = {name: reason for name, reason in reasons.items() if reason}
    devices = tuple(dict.fromkeys(device for name, device in device_of.items() if name not in declined))
    return Entry(
        name=name,
        origin=origin,
        available=probe.available,
        version=probe.version,
        devices=devices,
        variants=tuple(device_of),
        reason=probe.reason,
        extra=backend.extra,
        device_of=device_of,
        declined=declined,
    )


def _declines(backend: Backend, variant: Variant) -> str:
    try:
        return backend.declines(variant)
    except Exception as error:
        return f"asking it failed: {type(error).__name__}: {error}"


def probe_backend(name: str) -> Probe:
    """Whether a backend can be used here; one of another package is imported here only if that did no harm elsewhere.

    Raises:
        ConfigError: no backend has that name.
    """
    foreign = _foreign()
    elsewhere = probe_elsewhere(foreign)[name] if name in foreign else None
    if elsewhere is not None and not elsewhere.available:
        return elsewhere
    try:
        probe = elsewhere or get_backend(name).probe()
        if not isinstance(probe, Probe):
            raise TypeError(f"{probe!r} is no Probe")
        get_backend(name)
    except ConfigError:
        raise
    except UnavailableError as error:
        return Probe(False, reason=str(error))
    except (Exception, SystemExit) as error:
        return Probe(False, reason=f"probing failed: {type(error).__name__}: {error}")
    return probe


def _foreign() -> dict[str, EntryPoint]:
    """The entry points of other packages."""
    return {name: one for name, one in _entry_points().items() if not one.value.startswith("collage_evo.backends.")}


def _entry_points() -> dict[str, EntryPoint]:
    return _installed(tuple(sys.path))


@cache
def _installed(path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Those of all distributions on ``path``, which is sys.path; to read all takes 20 ms and more.

    Each job of a measuring process asks. What is installed there later is found by the next process.
    """
    found = entry_points()
    return {entry.name: entry for group in (GROUP, EXTENSIONS) for entry in found.select(group=group)}
