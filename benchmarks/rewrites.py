"""Which equal forms of a subgraph run faster, in which library, at shapes of known networks.

    python benchmarks/rewrites.py rewrites.json [--threads 2] [--only joined-convolutions ...] [--backends openvino]
    python benchmarks/rewrites.py rewrites.json --models network:densenet121 [--threads 2] [--variant bf16-int8]

The second compares whole models: as they are searched, as their files have them, and with one rewrite of the
catalogue wherever it applies. Inputs are random, or those of a NAME.npz beside a file.

Each library has a process of its own. In it the forms of one subgraph take turns; before each run as many bytes are
read as push weights out of the near caches, and the inputs are written again, as they would be inside a model. Given
are the time of the file's form, and the time of each other form over it, of each the lower quartile; the raw times
are kept. A form whose outputs differ from those of the file's form by more than rounding ends the benchmark; of a
variant in a lower precision one that is twice as far off as the file's form.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from networks import model_source
from rewrite_forms import CANDIDATES, Candidate
from rewrite_forms.form import ORIGINAL, WholeModel, in_int8
from rich.console import Console
from rich.table import Table

from collage_evo.backends.base import BuildFailure, Executable
from collage_evo.backends.registry import get_backend
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import Reference, relative_error
from collage_evo.graph.values import plain
from collage_evo.rewrites.catalogue import REWRITES
from collage_evo.statistics import bootstrap_interval
from collage_evo.target.slots import acquire_slot, usable_cores
from collage_evo.target.target import CPU, Target

FLUSHED = 8 << 20
"""Bytes read before each run."""
TOLERANCE = 1e-4
TURNS = (10, 60)
"""The least and the most for each shape."""


class Form:
    """One form, compiled by one library, on buffers of its own."""

    def __init__(
        self,
        library: str,
        model: onnx.ModelProto,
        graph: Graph,
        threads: int,
        workdir: Path,
        feeds: Mapping[str, Any],
        variant: str,
    ) -> None:
        backend, target = get_backend(library), Target.here(CPU, threads)
        how = backend.variant(variant)
        self.refused = ""
        built = backend.build(model, target, how, workdir)
        if isinstance(built, BuildFailure):
            self.refused = built.reason
            return
        inputs, outputs = ([graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs))
        self.feeds = {name: feeds[name] for name in graph.inputs}
        self.inputs = [self.feeds[tensor.name].copy() for tensor in inputs]
        self.outputs = [np.zeros(tensor.shape, tensor.dtype) for tensor in outputs]
        loaded = cast(Executable, backend.load(workdir, target, how, inputs, outputs))
        self._call: Callable[[], None] = loaded.bind(self.inputs, self.outputs)
        try:
            self._call()
        except RuntimeError as error:  # what a library refuses at its first run only
            self.refused = str(error)

    def run_ms(self, flushed: np.ndarray) -> float:
        """One run as it would be inside a model: weights cold, inputs warm."""
        flushed.sum()
        for array, given in zip(self.inputs, self.feeds.values(), strict=True):
            array[...] = given
        begin = time.perf_counter()
        self._call()
        return (time.perf_counter() - begin) * 1e3


def measure(
    library: str, candidate: Candidate | WholeModel, shape: str, threads: int, seconds: float, variant: str
) -> dict[str, object]:
    """Times of each form at one shape in ms, by turn; errors against ONNX Runtime without optimisations."""
    with tempfile.TemporaryDirectory() as work:
        forms, errors, refused = {}, {}, {}
        graph = build_graph(candidate.model(shape, ORIGINAL))
        feeds = candidate.feeds if isinstance(candidate, WholeModel) else random_inputs(graph, 0)
        expected = plain(Reference(graph.model).run(feeds))
        how = get_backend(library).variant(variant)
        catalogue = {ORIGINAL, *(rewrite.name for rewrite in REWRITES)}
        for form in (ORIGINAL, *candidate.forms):
            if how.int8_form is not None and form not in catalogue:
                refused[form] = "int8 is written into rewrites of the catalogue alone"
                continue
            quantised = how.int8_form is not None
            model = in_int8(graph, form, feeds, how) if quantised else candidate.model(shape, form)
            workdir = Path(work) / form
            workdir.mkdir()
            made = Form(library, model, graph, threads, workdir, feeds, how.base or variant)
            if made.refused:
                refused[form] = made.refused
                continue
            errors[form] = relative_error(made.outputs, expected).relative
            if errors[form] > max(TOLERANCE, 2 * errors.get(ORIGINAL, 0.0)) and form != ORIGINAL:
                raise SystemExit(f"{candidate.name} {form} at {shape} in {library}: error {errors[form]:.2e}")
            forms[form] = made
        times: dict[str, list[float]] = {form: [] for form in forms}
        flushed, end = np.zeros(FLUSHED, np.uint8), time.perf_counter() + seconds
        names, rng = list(forms), np.random.default_rng(0)
        for turn in range(TURNS[1] + 2):
            for name in rng.permutation(names):  # a form finds the caches as the one before leaves them
                value = forms[name].run_ms(flushed)
                if turn > 1:
                    times[name].append(value)
            if turn > TURNS[0] + 1 and time.perf_counter() > end:
                break
        return {"times_ms": times, "errors": errors, "refused": refused}


def measure_library(library: str, names: Sequence[str], threads: int, seconds: float, variant: str) -> None:
    """Print a JSON line for each shape of each candidate; run in a process of its own."""
    for name in names:
        candidate = CANDIDATES.get(name) or WholeModel(name)
        for shape in candidate.shapes:
            found = measure(library, candidate, shape, threads, seconds, variant)
            print(json.dumps({"library": library, "name": name, "shape": shape, **found}), flush=True)


def ratio(times: dict[str, list[float]], form: str) -> tuple[float, float, float]:
    """A form's time over the original's, of each the lower quartile over turns, with the 95 % bootstrap interval.

    On a machine that others use too, the upper half of the times are theirs.
    """
    pairs = np.array([times[form], times[ORIGINAL]])

    def ratios(drawn: np.ndarray) -> np.ndarray:
        found = np.quantile(pairs[:, drawn], 0.25, axis=2)
        return np.asarray(found[0] / found[1])

    middle = np.quantile(pairs, 0.25, axis=1)
    low, high = bootstrap_interval(ratios, pairs.shape[1], resamples=500) or (np.nan, np.nan)
    return float(middle[0] / middle[1]), low, high


def show(rows: Sequence[dict[str, object]]) -> None:
    table = Table("rewrite", "shape", "library", "original ms", "form: time over the original's [95 %]")
    for row in rows:
        times, refused = row["times_ms"], row["refused"]
        assert isinstance(times, dict)
        assert isinstance(refused, dict)
        told = []
        if ORIGINAL in times:
            for form in times:
                if form != ORIGINAL:
                    middle, low, high = ratio(times, form)
                    told.append(f"{form} {middle:.2f} [{low:.2f}, {high:.2f}]")
        told += [f"{form} refused: {reason[:60]}" for form, reason in refused.items()]
        first = f"{np.quantile(times[ORIGINAL], 0.25):.3f}" if ORIGINAL in times else ""
        table.add_row(str(row["name"]), str(row["shape"]), str(row["library"]), first, "\n".join(told))
    Console(width=180).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=sorted(CANDIDATES), choices=sorted(CANDIDATES))
    parser.add_argument("--models", nargs="+", default=[], help="compare these whole models, and no subgraphs")
    parser.add_argument("--backends", nargs="+", default=["onnxruntime", "openvino"])
    parser.add_argument("--seconds", type=float, default=0.7, help="for each shape and library")
    parser.add_argument(
        "--variant", default="default", help="of each library: bf16 is OpenVINO's own, bf16-int8 writes int8 into it"
    )
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        names = [model_source(name) for name in options.models] or options.only
        measure_library(options.inside, names, options.threads, options.seconds, options.variant)
        return
    cores = usable_cores()[: options.threads]
    slot = acquire_slot((tuple(cores),))
    assert slot is not None  # it waits for ever
    rows = []
    for library in options.backends:
        words = ["--inside", library, "--threads", str(options.threads), "--seconds", str(options.seconds)]
        command = [sys.executable, __file__, str(options.output), *words, "--only", *options.only]
        command += ["--models", *options.models] if options.models else []
        command += ["--variant", options.variant]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
        )
        assert process.stdout is not None
        for line in process.stdout:
            rows.append(json.loads(line))
            options.output.write_text(json.dumps(rows))
        if process.wait():
            raise SystemExit(f"{library} ended with {process.returncode}")
    slot.release()
    show(rows)


if __name__ == "__main__":
    main()
