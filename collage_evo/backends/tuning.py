"""The contract of a backend that tunes: it tries ways of running a piece's kernels, and keeps what it timed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from collage_evo.target.target import Target

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Kernel:
    """What is on record of one loop nest: how many ways were timed, the untuned one's time and the best, ms.

    A time is infinite where nothing that was tried ran.
    """

    trials: int
    untuned_ms: float
    best_ms: float


class Tuner(ABC):
    """Tries ways of running kernels. Records live in a directory that runs share and belong to one target.

    A tuned piece is built with the variant that :meth:`freeze` names and with ``target.records``.
    """

    @abstractmethod
    def tune(self, model: onnx.ModelProto, target: Target, records: Path, trials: int) -> tuple[str, ...]:
        """Time at most ``trials`` more ways of running the kernels of ``model``, and keep each in ``records``.

        Called in a measuring process that has the target's cores to itself and may be killed at any moment. Several
        processes may share ``records``. Gives the keys of all kernels of ``model`` that it can tune; when no trial
        was added, there is nothing left to try.
        """

    @abstractmethod
    def kernels(self, records: Path) -> Mapping[str, Kernel]:
        """Everything on record, by key. Quick: called after each round."""

    @abstractmethod
    def freeze(self, records: Path, keys: frozenset[str], into: Path) -> str:
        """Copy the best of each of ``keys`` to ``into``, and name the variant that builds with them.

        Equal copies have equal names. Empty where no kernel is better than untuned.
        """


@runtime_checkable
class Tunable(Protocol):
    """A backend that can find better ways of running its kernels by trying them."""

    def tuner(self) -> Tuner:
        """What tries them."""
        ...
