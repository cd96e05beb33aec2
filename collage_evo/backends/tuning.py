"""The contract of a backend that tunes: it times schedules of a piece's kernels and records them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from collage_evo.hardware.target import Target

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Kernel:
    """The record of one loop nest: the number of timed schedules, the untuned time and the best time in ms.

    A time is infinite where no schedule ran.
    """

    trials: int
    untuned_ms: float
    best_ms: float


class Tuner(ABC):
    """Times schedules of kernels. Records belong to one target and are in a directory that runs share.

    A tuned piece is built with the variant that :meth:`freeze` names and with ``target.records``.
    """

    @abstractmethod
    def tune(self, model: onnx.ModelProto, target: Target, records: Path, trials: int) -> tuple[str, ...]:
        """Time at most ``trials`` more schedules of the kernels of ``model``, and save each in ``records``.

        Runs in a measuring process that has exclusive use of the target's cores and may be killed at any moment.
        Several processes may share ``records``. Returns the keys of all kernels of ``model`` that it can tune; when
        it added no trial, there is nothing left to try.
        """

    @abstractmethod
    def kernels(self, records: Path) -> Mapping[str, Kernel]:
        """All records, by key. Must be quick: called after each round."""

    @abstractmethod
    def freeze(self, records: Path, keys: frozenset[str], into: Path) -> str:
        """Copy the best record of each of ``keys`` to ``into``; returns the variant's name that builds with them.

        Equal copies have equal names. The name is empty where no kernel is better than untuned.
        """


@runtime_checkable
class Tunable(Protocol):
    """A backend that can find better schedules of its kernels by timing them."""

    def tuner(self) -> Tuner:
        """The tuner of its kernels."""
