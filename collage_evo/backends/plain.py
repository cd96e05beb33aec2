"""Pieces as files that their library loads by itself: what a backend may offer for deploying without this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from collage_evo.backends.variants import Variant
from collage_evo.target.target import Target

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class CompiledPiece:
    """A piece as the search built it.

    Attributes:
        directory: with the files that the backend's ``build`` wrote.
        variant: the one that loads them.
        target: what they were compiled for.
        inputs: names of the tensors that it takes, in the order of the piece's own inputs.
        outputs: the same of what it makes.
        model: what was compiled, with inputs and outputs in this order. Raises InputError where that is gone.
    """

    directory: Path
    variant: Variant
    target: Target
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    model: Callable[[], onnx.ModelProto]


@dataclass(frozen=True)
class PlainPiece:
    """The files of a piece by their names in its folder, first the one that is opened, and what to load them with.

    ``settings`` are the library's own, by the library's names; what else the loader has to know is among them.
    """

    files: tuple[str, ...]
    settings: Mapping[str, str]


class PlainFiles(Protocol):
    """How a backend's pieces are written as plain files, and the code that loads these.

    ``code`` is a folder with ``piece.py``, ``piece.hpp`` and ``lines.md.j2``. The first defines ``Piece``, made of
    a folder and a piece as ``pipeline.json`` tells it, whose ``bind`` and ``run`` are those of ``Executable`` and
    ``DynamicExecutable``, and ``cpp_flags``, what a C++ compiler
    has to be told, given a folder for links to libraries; it needs the library and NumPy only.
    The second is the same in C++. The third says in Markdown how one file is loaded, line by line.
    """

    @property
    def kind(self) -> str:
        """What ``piece.hpp`` calls its class."""
        ...

    @property
    def code(self) -> Path:
        """The folder with the code that loads what :meth:`write` wrote."""
        ...

    def write(self, piece: CompiledPiece, folder: Path, stem: str) -> PlainPiece:
        """Write ``piece`` into ``folder``, in files whose names begin with ``stem``.

        Raises:
            InputError: it has no such form.
        """
        ...


@runtime_checkable
class HasPlainFiles(Protocol):
    """A backend whose pieces can be files that its library loads by itself."""

    def plain_files(self) -> PlainFiles:
        """How they are written."""
        ...
