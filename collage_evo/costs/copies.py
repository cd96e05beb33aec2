"""Costs of copies between the host's memory and an accelerator's.

Copies are timed once a run, at several sizes, from page-locked memory, as sessions copy; between these sizes the cost
is taken as linear in the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from scipy.optimize import nnls

from collage_evo.backends.registry import on_host
from collage_evo.costs.database import CostDatabase
from collage_evo.errors import UnavailableError
from collage_evo.fitness.jobs import CopyJob, Measured
from collage_evo.fitness.machine import Regions
from collage_evo.genome.cost_model import BYTES_PER_MB, Border, Copies, Engine
from collage_evo.genome.failure import Failure
from collage_evo.hardware.target import Target
from collage_evo.runtime.timing import Timing

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 21, 1 << 24)
"""Bytes of the copies that are timed."""
RUNS = 30
PROTOCOL = 2
"""Version of the way of timing; it goes up with each change."""


def engines_off_host(engines: Iterable[Engine]) -> frozenset[Engine]:
    """Engines that work in an accelerator's memory."""
    return frozenset(engine for engine in engines if not on_host(*engine))


def measure_copies(regions: Regions, target: Target, database: CostDatabase) -> Copies:
    """Cost of copies to the target's accelerator and back, timed once in a run.

    Raises:
        UnavailableError: it does not copy; the message has the reason.
    """
    measured: dict[CopyJob, Measured] = {}
    for job in (CopyJob(nbytes, there, RUNS) for there in (True, False) for nbytes in SIZES):
        way = "there" if job.there else "back"
        key = target.key("copies", f"protocol{PROTOCOL}", way, f"{job.nbytes} bytes", f"runs{job.runs}")
        answer = database.get(key)
        if not isinstance(answer, Measured):
            (reply,) = regions.map([job])
            answer = reply.answer
        if isinstance(answer, Failure):
            raise UnavailableError(f"target {target.device}: copies cannot be timed: {answer}")
        database.put(key, answer)
        measured[job] = answer

    def border(there: bool) -> Border:
        times = {job.nbytes: timing.times_ms for job, timing in measured.items() if job.there == there}
        return fit_copies({nbytes: Timing(ms).median_ms for nbytes, ms in times.items()})

    return Copies(border(True), border(False))


def fit_copies(ms: Mapping[int, float]) -> Border:
    """Fixed ms and ms per MB, neither below zero, from times by bytes. Errors count relative to the time."""
    took = np.array([*ms.values()])
    terms = np.array([[1.0, nbytes / BYTES_PER_MB] for nbytes in ms])
    (fixed, rate), _ = nnls(terms / took[:, None], np.ones(len(took)))
    return Border(float(fixed), float(rate))
