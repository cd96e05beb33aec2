"""collage_evo: the fastest correct placement of an ONNX model over a machine's inference backends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collage_evo.api import Result, optimize
    from collage_evo.runtime.session import Session

__version__ = "0.1.0"
__all__ = ["Result", "__version__", "load", "optimize"]
_OF_THE_SEARCH = ("Result", "optimize")

# ONNX Runtime, from 1.29 on, reports over the network what it loads, from threads of its own that run during
# measurements. It reads this variable when it is first imported; the user's own value stays.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if os.environ.get("COLLAGE_EVO_PROCESSOR"):
    # Libraries read the processor's instructions while they are imported.
    from collage_evo.hardware.held import hold

    hold()


def load(path: str | Path, strict: bool = False) -> Session:
    """Open an artifact (a ``.collage`` directory), a run's answer, or the variant of a package that is for this
    processor, for inference.

    See :class:`collage_evo.runtime.session.Session`. If this processor's instructions differ from those of the one
    that it was made or measured on, the call warns with the class :class:`collage_evo.errors.OtherProcessor`; with
    ``strict`` that is an error.
    """
    from collage_evo.errors import InputError
    from collage_evo.runtime.artifact import load_artifact

    if "\0" in str(path):
        raise InputError(f"{str(path)!r} has a NUL character, which no file name has: remove it")
    return load_artifact(Path(path), strict)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import what only the search needs on first access: an installation that only runs artifacts lacks it."""
    if name not in _OF_THE_SEARCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from collage_evo import api
    except ModuleNotFoundError as error:
        from collage_evo.errors import UnavailableError
        from collage_evo.extras import install

        raise UnavailableError(f"{error.name} is missing: {install('search')}") from error
    return getattr(api, name)
