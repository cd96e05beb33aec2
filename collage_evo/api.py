"""The Python interface: takes a model, gives a result with a session, an artifact and a report."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from rich.console import Console

from collage_evo.accuracy.choose import name_of
from collage_evo.config import Config, parse_config, read_config
from collage_evo.errors import CollageError, InputError, system_errors_told
from collage_evo.graph.data import write_npz
from collage_evo.graph.files import save_model
from collage_evo.report.console import PlainConsole
from collage_evo.report.progress import CallbackReporter, OnProgress, reporter
from collage_evo.report.result import Result as Report
from collage_evo.report.terminal import print_result, verdict
from collage_evo.run.directory import discard_unbegun, start_run
from collage_evo.run.profiles import ProfileResult, run_profiles, told_shapes
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.session import Session

Model = str | os.PathLike[str] | bytes | onnx.ModelProto
Arrays = Mapping[str, Any]
GIVEN = "given"
"""Folder of a run directory with what was given in memory."""


@dataclass(frozen=True)
class Result:
    """What :func:`optimize` found.

    A temporary run directory is removed with the last reference to its result; ``save`` keeps the artifact.
    """

    directory: Path
    """The run directory."""
    profiles: tuple[ProfileResult, ...]
    """What was found for each profile of input shapes; only one unless several were asked for."""
    _temporary: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False, compare=False)

    @property
    def report(self) -> Report:
        """What ``result.json`` says; of the first profile, where there are several."""
        return self.profiles[0].result

    @property
    def artifact(self) -> Path:
        """The compiled artifact, for :func:`collage_evo.load`."""
        return self.directory / "best.collage"

    @cached_property
    def session(self) -> Session:
        """The artifact, loaded when first asked for."""
        return load_artifact(self.artifact)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Copy the artifact to ``path``, which may not exist yet."""
        target = Path(path)
        if target.exists():
            raise InputError(f"{target} exists: choose another name, or remove it first")
        shutil.copytree(self.artifact, target)
        return target

    def table(self, width: int = 80) -> str:
        """Each backend alone, the seeds, the answer and its regions as text, ``width`` characters wide."""
        console = PlainConsole(file=io.StringIO(), width=width, force_terminal=False)
        with console.capture() as text:
            print_results(self.profiles, console)
        return text.get()

    def __str__(self) -> str:
        return "\n".join(verdict(profile.result) for profile in self.profiles)

    def _repr_html_(self) -> str:
        """The tables, for notebooks."""
        console = PlainConsole(file=io.StringIO(), width=100, record=True)
        print_results(self.profiles, console)
        frame = "<pre style='line-height:normal;font-family:monospace'><code>{code}</code></pre>"
        return console.export_html(inline_styles=True, code_format=frame)


def print_results(profiles: Sequence[ProfileResult], console: Console) -> None:
    """Every profile's tables, under its shapes where there are several."""
    for profile in profiles:
        if len(profiles) > 1:
            console.print(f"profile: {told_shapes(profile.shapes)}", highlight=False)
        print_result(profile.result, console)


@system_errors_told()
def optimize(
    model: Model,
    *,
    inputs: Arrays | Sequence[Arrays] | None = None,
    data: str | os.PathLike[str] | None = None,
    shapes: Mapping[str, Sequence[Any]] | Literal["auto"] | None = None,
    threads: int | None = None,
    seconds: float | None = None,
    budget: float | str | None = None,
    metric: str | Callable[..., Any] | None = None,
    backends: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    progress: OnProgress | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Result:
    """Find, compile and verify the fastest placement of a model over this machine's backends.

    Args:
        model: path of an ONNX file, ``builtin:NAME``, the file's bytes or a ``ModelProto``.
        inputs: an array for each input, or several such mappings: used in place of random ones, and their shapes
            fix dynamic dimensions. With a ``metric``, arrays that are no inputs are labels.
        data: the same as a file, a folder or ``file.py:function``, as the key ``data.source`` says.
        shapes: full shape of each input that has a dynamic dimension; or several shapes, one for each profile that
            the answer is to be fast for; or ``auto``: the smallest that run.
        threads: threads that a placement may use; 1 unless the configuration says more.
        seconds: time for the genetic search, which is not all that a run takes.
        budget: largest error of the answer: relative (2-norm) of any output; with ``metric`` its largest drop, as
            0.01, or as ``"1%"`` of what the model reaches in float32. ``"exact"``: float32 alone.
        metric: what is meant by wrong, as the key ``accuracy.metric`` says: ``agreement``, ``top1`` and so on, or a
            function of outputs and items, which other processes load again from the file that defines it.
        backends: which take part; every usable one by default.
        out: the run directory, with the report and what ``resume`` needs; a temporary one by default.
        config: anything else that may be configured: nested keys as in YAML, a YAML file, or a ``Config``. The
            arguments above come before it.
        progress: called with the stage's name, how much of it is done, how much there is (None: not known) and a
            note. By default a bar on a terminal, and lines on standard error elsewhere.
        resume: go on with the run that is in ``out``.
        overwrite: delete the run that is in ``out``.

    Raises:
        CollageError: bad input or configuration, or a backend that is not there; one line says what to do.
    """
    if inputs is not None and data is not None:
        raise InputError("optimize takes inputs or data, not both: give the arrays, or where they lie")
    settings = {
        **_shape_settings(shapes),
        "target.threads": threads,
        "search.seconds": seconds,
        "accuracy.budget": budget,
        "accuracy.metric": None if metric is None else name_of(metric),
        "backends.use": None if backends is None else list(backends),
    }
    base = _base(config)
    place: Any = out if out is not None else (base.get("output") or {}).get("dir")
    temporary = tempfile.TemporaryDirectory(prefix="collage_evo-") if place is None else None
    directory = Path(temporary.name if temporary else place)
    given = _Given(directory.absolute() / GIVEN, model, inputs)
    try:
        settings |= {"model.source": given.source, "data.source": given.data or _text(data)}
        chosen = parse_config(base, {key: value for key, value in settings.items() if value is not None}, "optimize")
        chosen = start_run(directory, chosen, resume=resume, overwrite=overwrite)
        found = _run(given, directory, chosen, progress)
    except BaseException:
        if temporary:
            temporary.cleanup()
        raise
    return Result(directory, found, temporary)


def _run(given: _Given, directory: Path, config: Config, progress: OnProgress | None) -> tuple[ProfileResult, ...]:
    try:
        given.write()
        with contextlib.nullcontext(CallbackReporter(progress)) if progress else reporter() as told:
            return run_profiles(config, directory, told)
    except (CollageError, OSError):
        discard_unbegun(directory)
        raise


def _shape_settings(shapes: Mapping[str, Sequence[Any]] | Literal["auto"] | None) -> dict[str, Any]:
    """The keys that say the same; tuples and NumPy's integers become what YAML has."""
    if shapes is None or shapes == "auto":
        return {"model.sizes": "smallest"} if shapes else {}
    given = {
        name: [list(map(int, part)) if isinstance(part, Sequence) else int(part) for part in parts]
        for name, parts in shapes.items()
    }
    return {"model.shapes": given}


def _text(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


def _base(config: Config | Mapping[str, Any] | str | os.PathLike[str] | None) -> dict[str, Any]:
    if config is None:
        return {}
    if isinstance(config, Config):
        return config.model_dump()
    return dict(config) if isinstance(config, Mapping) else read_config(os.fspath(config))


class _Given:
    """What was given, as files: what is in memory is written into the run directory, so that it can be resumed."""

    def __init__(self, directory: Path, model: Model, inputs: Arrays | Sequence[Arrays] | None) -> None:
        self._directory = directory
        self._model = model
        self._samples = [inputs] if isinstance(inputs, Mapping) else list(inputs or ())

    @property
    def source(self) -> str:
        """For ``model.source``."""
        if isinstance(self._model, str | os.PathLike):
            return os.fspath(self._model)
        return str(self._directory / "model.onnx")

    @property
    def data(self) -> str | None:
        """For ``data.source``."""
        return str(self._directory / "data") if self._samples else None

    def write(self) -> None:
        if isinstance(self._model, bytes | onnx.ModelProto):
            self._directory.mkdir(exist_ok=True)
            if isinstance(self._model, bytes):
                Path(self.source).write_bytes(self._model)
            else:
                save_model(self._model, Path(self.source))
        for index, sample in enumerate(self._samples):
            path = self._directory / "data" / f"{index:06d}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_npz(path, {name: np.asarray(array) for name, array in sample.items()})
