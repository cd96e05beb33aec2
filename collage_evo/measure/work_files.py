"""Paths of the files of one run that worker processes read, in its work directory."""

from __future__ import annotations

from pathlib import Path


class WorkFiles:
    """Files below ``directory``; not every run has all of them."""

    def __init__(self, directory: Path) -> None:
        self.original = directory / "original.onnx"
        """The person's own model."""
        self.dynamic = directory / "dynamic.onnx"
        """The same before its inputs' shapes were fixed; not there where it was static."""
        self.normalised = directory / "normalised.onnx"
        """The model that is searched."""
        self.reference = directory / "reference.npz"
        """Values of reference inputs and outputs, as ``measure/references.py`` keeps them."""
        self.edges = directory / "edges.npz"
        """The same for inputs at the edge of what the model may be given (``graph/edges.py``)."""
        self.nonfinite = directory / "nonfinite.npz"
        """The same with NaN and infinity in the inputs; there where those must not be lost."""
        self.recorded = directory / "recorded.npz"
        """Values that tensors of the normalised model have in the first reference run."""
        self.ranges = directory / "ranges.json"
        """Calibrated ranges of the normalised model's tensors; not there where nothing is quantised."""
        self.search = directory / "search.npz"
        """The samples of the search and what they ought to give, as ``accuracy/samples.py`` keeps them."""
        self.records = directory / "records"
        """What backends keep of their tuning, a folder for each."""
