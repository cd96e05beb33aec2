"""Plain files of a piece, which its library loads by itself: a backend's form for deployment without this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from collage_evo.backends.variants import Variant
from collage_evo.hardware.target import Target

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class CompiledPiece:
    """A piece as the search built it.

    Attributes:
        directory: holds the files that the backend's ``build`` wrote.
        variant: the one that loads them.
        target: what they were compiled for.
        inputs: names of the tensors that it reads, in the order of the piece's own inputs.
        outputs: likewise for the tensors that it makes.
        model: the compiled model, with inputs and outputs in this order. Raises InputError where it is missing.
    """

    directory: Path
    variant: Variant
    target: Target
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    model: Callable[[], onnx.ModelProto]


@dataclass(frozen=True)
class PlainPiece:
    """The files of a piece by their names in its folder, the one to open first, and the settings to load them with.

    ``settings`` are the library's, by the library's names, and the loader's further parameters.
    """

    files: tuple[str, ...]
    settings: Mapping[str, str]


class PlainFiles(Protocol):
    """How a backend's pieces are written as plain files, and the code that loads these.

    ``code`` is a folder with ``piece.py``, ``piece.hpp`` and ``lines.md.j2``. The first defines ``Piece``, made of
    a folder and a piece's entry in ``pipeline.json``, whose ``bind`` and ``run`` are those of ``Executable`` and
    ``DynamicExecutable``, and ``cpp_flags``, the options of a C++ compiler, given a folder for links to libraries; it
    needs only the library and NumPy. The second is the same in C++. The third shows in Markdown how to load one file,
    line by line.
    """

    @property
    def kind(self) -> str:
        """The name of the class in ``piece.hpp``."""

    @property
    def code(self) -> Path:
        """The folder with the code that loads the files of :meth:`write`."""

    def write(self, piece: CompiledPiece, folder: Path, stem: str) -> PlainPiece:
        """Write ``piece`` into ``folder``, in files whose names begin with ``stem``.

        Raises:
            InputError: it has no such form.
        """


@runtime_checkable
class HasPlainFiles(Protocol):
    """A backend whose pieces can be files that its library loads by itself."""

    def plain_files(self) -> PlainFiles:
        """The writer of these files."""
