"""Python interface: ``optimize`` and its result, with a session, an artifact and a report."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from collage_evo.answer.so_far import read_so_far
from collage_evo.arguments import (
    Arrays,
    ConfigLike,
    Model,
    ModelAndData,
    Precision,
    Shapes,
    base_keys,
    effort_keys,
    resolve,
    shape_keys,
)
from collage_evo.config import Config
from collage_evo.effort import Effort
from collage_evo.errors import AnswerStays, InputError, describing_system_errors
from collage_evo.export import FORMS, Exported, Form
from collage_evo.graph.load.functions import file_being_imported
from collage_evo.report.console import PlainConsole
from collage_evo.report.finished import Finished
from collage_evo.report.progress import CallbackReporter, OnProgress, Reporter, reporter
from collage_evo.report.result import Result as Report
from collage_evo.report.so_far import describe_answers
from collage_evo.report.summary import summary
from collage_evo.report.terminal import print_profiles
from collage_evo.run.at_work import at_work
from collage_evo.run.deadline import TimeIsOver, deadline
from collage_evo.run.directory import start_run, undone_without_answer
from collage_evo.run.profiles import run_profiles
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.manifest import BEST
from collage_evo.runtime.session import Session


@dataclass(frozen=True)
class Result:
    """Result of :func:`optimize`.

    A temporary run directory is removed with the last reference to its result; ``save`` copies the artifact.
    """

    directory: Path
    """The run directory."""
    profiles: tuple[Finished, ...] = field(repr=False)
    """The result for each profile of input shapes; only one unless several were requested. Empty if the time was over
    before the final comparison, or that failed."""
    _temporary: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False, compare=False)

    @property
    def report(self) -> Report:
        """The content of ``result.json``; of the first profile, if there are several.

        Raises:
            InputError: the run's time was over before its final comparison, or that failed.
        """
        if not self.profiles:
            raise InputError(
                "the run has no report, as it ended, or a stage failed, before its final comparison: allow more time"
            )
        return self.profiles[0].result

    @property
    def artifact(self) -> Path:
        """The compiled artifact, for :func:`collage_evo.load`."""
        return self.directory / BEST

    @cached_property
    def session(self) -> Session:
        """The artifact, loaded on first access."""
        return load_artifact(self.artifact)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Copy the artifact to ``path``, which may not exist yet."""
        target = Path(path)
        if target.exists():
            raise InputError(f"{target} exists: choose another name, or remove it first")
        shutil.copytree(self.artifact, target)
        return target

    def export(self, path: str | os.PathLike[str], form: Form = "plain") -> Exported:
        """Write the answer to the folder ``path``, which may not exist yet, as files that its libraries load without
        this package.

        Args:
            path: of the folder.
            form: ``"onnxruntime"`` adds a model for ONNX Runtime with the package onnxruntime-ep-collage.

        Raises:
            InputError: ``path`` exists, or a part of the answer has no such form.
        """
        return FORMS[form](self.directory, Path(path))

    def table(self, width: int = 80) -> str:
        """All tables of measurements and of the answer as text, ``width`` characters wide."""
        console = PlainConsole(file=io.StringIO(), width=width, force_terminal=False)
        with console.capture() as text:
            print_profiles(self.profiles, console)
        return text.get()

    def __str__(self) -> str:
        if read_so_far(self.artifact) is not None:
            answers = "; ".join(describe_answers(self.artifact))
            return f"{self.artifact}: {answers}, not confirmed by the final comparison"
        return "\n".join(summary(self.profiles, None if self._temporary else self.directory))

    def _repr_html_(self) -> str:
        """The tables, for notebooks."""
        console = PlainConsole(file=io.StringIO(), width=100, record=True)
        print_profiles(self.profiles, console)
        if not self.profiles:
            console.print(str(self))
        frame = "<pre style='line-height:normal;font-family:monospace'><code>{code}</code></pre>"
        return console.export_html(inline_styles=True, code_format=frame)


@describing_system_errors()
def optimize(
    model: Model,
    *,
    inputs: Arrays | Sequence[Arrays] | None = None,
    data: str | os.PathLike[str] | None = None,
    shapes: Shapes | None = None,
    effort: Effort | None = None,
    time: float | None = None,
    threads: int | None = None,
    search_seconds: float | None = None,
    budget: float | str | None = None,
    metric: str | Callable[..., Any] | None = None,
    precision: Precision | None = None,
    like: str | os.PathLike[str] | None = None,
    backends: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    config: ConfigLike | None = None,
    progress: OnProgress | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Result:
    """Find, compile and verify the fastest placement of a model over this machine's backends.

    Args:
        model: path of an ONNX file, ``builtin:NAME``, the file's bytes or a ``ModelProto``.
        inputs: an array for each input, or several such mappings: used in place of random ones, and their shapes
            fix dynamic dimensions; if shapes differ, one answer is for all. With a ``metric``, arrays that are no
            inputs are labels.
        data: the same as a file, a folder or ``file.py:function``, in the format of the key ``data.source``.
        shapes: full shape of each input that has a dynamic dimension; or several shapes, one for each profile that
            the answer is to be fast for; or ranges such as ``"1..512"``, by input or by the name of a dimension, for
            one answer; or ``auto``: the smallest that run.
        effort: the effort of a run: ``quick``, ``normal`` or ``thorough``; see :mod:`collage_evo.effort`.
        time: seconds after which the best answer so far is the result; called in another thread than the main one,
            stages only have their shares of it.
        threads: threads that a placement may use; 1 unless the configuration sets more.
        search_seconds: time for the genetic search, which is not all that a run takes.
        budget: largest error of the answer: relative (2-norm) of any output; with ``metric`` its largest drop, as
            0.01, or as ``"1%"`` of the model's score in float32. ``"exact"``: float32 only.
        metric: the error measure, in the format of the key ``accuracy.metric``: ``agreement``, ``top1`` and so on, or
            a function of outputs and items, which other processes load again from the file that defines it.
        precision: ``"exact"`` is the same as that budget; ``"mixed"`` allows lower precisions.
        like: directory of a run of the same model with other weights, or nearly the same: this run measures only its
            answer and front, and takes seconds.
        backends: which take part; every usable one by default.
        out: the run directory, with the report and the files for ``resume``; a temporary one by default.
        config: all other settings: keys, nested as in YAML or dotted as in
            ``{"search.seconds": 60}``, a YAML file, or a ``Config``. The arguments above take precedence.
        progress: called with the stage's name, its finished and its total work (None: not known) and a note, a few
            times a second at most; if it accepts them also with ``fraction``, the share of all the work that is done,
            and ``seconds_left``. By default a bar on a terminal and in a notebook, and lines on standard error
            elsewhere.
        resume: continue the run that is in ``out``, with its own settings.
        overwrite: replace the run that is in ``out``, once this one has an answer; other files in it stay.

    Raises:
        CollageError: bad input or configuration, or a missing backend; one line explains what to do.
    """
    if file := file_being_imported():
        raise InputError(
            f"{file} calls optimize while it is imported for a function in it: put the call below "
            'if __name__ == "__main__":'
        )
    if inputs is not None and data is not None:
        raise InputError("optimize takes inputs or data, not both: pass the arrays, or the path of the samples")
    base = base_keys(config)
    place: Any = out if out is not None else (base.get("output") or {}).get("dir")
    if resume and place is None:
        raise InputError("resume needs out: pass the directory of the run to continue")
    temporary = tempfile.TemporaryDirectory(prefix="collage_evo-") if place is None else None
    directory = Path(temporary.name if temporary else place)
    files = ModelAndData(directory, model, inputs)
    options = {
        **shape_keys(shapes),
        **effort_keys(effort, config),
        "time": time,
        "model.source": files.source,
        "data.source": files.data or (None if data is None else os.fspath(data)),
        "target.threads": threads,
        "search.seconds": search_seconds,
        "backends.use": None if backends is None else list(backends),
    }
    source = os.fspath(config) if isinstance(config, str | os.PathLike) else ""
    active = contextlib.nullcontext(CallbackReporter(progress)) if progress else reporter()
    try:
        resolved = resolve(
            base, options, "optimize", budget=budget, precision=precision, metric=metric, like=like
        )
        with deadline(None if resume else resolved.time, directory=directory):
            profiles = search_in(
                directory, resolved, files, active, resume=resume, overwrite=overwrite, source=source
            )
    except AnswerStays:
        profiles = ()
    except TimeIsOver:
        if not (directory / BEST).exists():
            raise InputError(f"no answer within {resolved.time:g} s: increase time") from None
        profiles = ()
    except BaseException:
        if temporary:
            temporary.cleanup()
        raise
    return Result(directory, profiles, temporary)


def search_in(
    directory: Path,
    config: Config,
    files: ModelAndData,
    progress: contextlib.AbstractContextManager[Reporter],
    *,
    resume: bool,
    overwrite: bool,
    source: str,
) -> tuple[Finished, ...]:
    """Search with a resolved ``config`` in ``directory``.

    Args:
        directory: of the run.
        config: of the run.
        files: its model and samples.
        progress: the reporter, as a context.
        resume: continue the run that is there.
        overwrite: remove the run that is there.
        source: the file of ``config``, if there is one.
    """
    with at_work(directory):
        config = start_run(
            directory, config, resume=resume, overwrite=overwrite, source=source, in_memory=files.in_memory
        )
        if resume:
            config = config.untimed()
        with undone_without_answer(directory), progress as active:
            files.write()
            return run_profiles(config, directory, active, files.parsed)
