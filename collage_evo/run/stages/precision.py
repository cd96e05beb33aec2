"""What lower precisions need before a search: ranges, what each operator loses in them, who takes no part."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import Arithmetic, engine_name
from collage_evo.files import write_whole
from collage_evo.fitness.costs.model import Engine
from collage_evo.fitness.final.baselines import Baseline
from collage_evo.graph.ir import members
from collage_evo.graph.prepare import SearchableModel
from collage_evo.patterns.match import Match
from collage_evo.quantise.ranges import calibrate, read_ranges, write_ranges
from collage_evo.quantise.rules import Ranges
from collage_evo.quantise.shares import error_shares
from collage_evo.run.context import RunContext
from collage_evo.run.stages.samples import calibration_feeds, read_sampled
from collage_evo.target.slots import usable_cores

CALIBRATION_SECONDS, SHARES_SECONDS = 30.0, 20.0
SLOWER = 1.1
"""A precision in which a backend alone takes so many times as long as in float32 is not tried on parts."""


@dataclass(frozen=True)
class Precision:
    """What a search may do in lower precisions.

    Attributes:
        ranges: of the normalised model's tensors; None where static int8 takes no part.
        shares: by arithmetic, what each node adds to the squared relative error of the outputs.
        left_out: engines that take no part.
    """

    ranges: Ranges | None = None
    shares: Mapping[Arithmetic, Sequence[float]] = field(default_factory=dict)
    left_out: frozenset[Engine] = frozenset()

    def error2(self, match: Match) -> float:
        """What ``match`` is predicted to add to the squared relative error of the outputs."""
        if match.exact:
            return 0.0
        backend = get_backend(match.backend)
        around = self.shares.get(backend.variant(match.family[1]).arithmetic, ())
        inside = self.shares.get(Arithmetic.INT8, ())
        shares = ((inside if match.quantised >> node & 1 else around, node) for node in members(match.nodes))
        return sum(share[node] for share, node in shares if share)


FLOAT32 = Precision()
"""No lower precision takes part."""


def look_into_precision(run: RunContext, model: SearchableModel, baselines: Sequence[Baseline]) -> Precision:
    """Calibrate, and find what each operator loses; nothing where only float32 may answer.

    What was found is kept: a resumed run searches the same space.
    """
    if not run.setting.largest_error:
        return FLOAT32
    feeds, sampled = calibration_feeds(run), read_sampled(run)
    calibrated = run.config.accuracy.int8_without_data or (sampled is not None and not sampled.random)
    threads = len(usable_cores())
    ranges: Ranges = {}
    if calibrated:
        path = Path(run.setting.ranges)
        if not path.exists():
            with run.stage("calibrating"):
                write_ranges(path, calibrate(model.graph, feeds, threads, CALIBRATION_SECONDS))
        ranges = read_ranges(path)
    saved = run.work / "shares.json"
    if not saved.exists():
        with run.stage("what each operator loses in a lower precision"):
            write_whole(
                saved, json.dumps(error_shares(model.graph, ranges, feeds[:1], threads, SHARES_SECONDS))
            )
    shares = {Arithmetic(name): tuple(values) for name, values in json.loads(saved.read_text()).items()}
    return Precision(ranges if calibrated else None, shares, _slow(run, baselines))


def _slow(run: RunContext, baselines: Sequence[Baseline]) -> frozenset[Engine]:
    """Engines of a lower precision in which their backend alone is slower than in float32; says so."""
    times = {(b.backend, b.variant): b.outcome.latency_ms for b in baselines if b.outcome.latency_ms is not None}
    found = set()
    for (backend, variant), ms in times.items():
        default = times.get((backend, get_backend(backend).variants[0].name))
        exact = get_backend(backend).variant(variant).arithmetic is Arithmetic.FLOAT32
        if not exact and default is not None and ms > SLOWER * default:
            found.add((backend, variant))
            run.reporter.say(
                f"{engine_name(backend, variant)} takes {ms / default:.2f} times as long as float32 here: left out"
            )
    return frozenset(found)
