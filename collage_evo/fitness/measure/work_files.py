"""The files of one run that measuring processes read: a name for each, in its work directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class WorkFiles:
    """Files below ``directory``; some are not there in every run."""

    directory: Path

    @property
    def original(self) -> Path:
        """The person's own model."""
        return self.directory / "original.onnx"

    @property
    def dynamic(self) -> Path:
        """The same before its inputs' shapes were fixed; not there where it was static."""
        return self.directory / "dynamic.onnx"

    @property
    def normalised(self) -> Path:
        """The model that is searched."""
        return self.directory / "normalised.onnx"

    @property
    def reference(self) -> Path:
        """Values of reference inputs and outputs, as ``fitness/measure/references.py`` keeps them."""
        return self.directory / "reference.npz"

    @property
    def nonfinite(self) -> Path:
        """The same with NaN and infinity in the inputs; there where those must not be lost."""
        return self.directory / "nonfinite.npz"

    @property
    def recorded(self) -> Path:
        """Values that tensors of the normalised model have in the first reference run."""
        return self.directory / "recorded.npz"

    @property
    def ranges(self) -> Path:
        """Calibrated ranges of the normalised model's tensors; not there where nothing is quantised."""
        return self.directory / "ranges.json"

    @property
    def search(self) -> Path:
        """The samples of the search and what they ought to give, as ``accuracy/samples.py`` keeps them."""
        return self.directory / "search.npz"

    @property
    def records(self) -> Path:
        """What backends keep of their tuning, a folder for each."""
        return self.directory / "records"
