"""Publisher of a run: until the final comparison it keeps ``best.collage`` the fastest answer known to be right."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from collage_evo.answer.baselines import Baseline, best_single
from collage_evo.answer.candidates import EXACT, arithmetics
from collage_evo.answer.delivery import ANSWER, Delivery
from collage_evo.answer.so_far import Evidence, SoFar, read_so_far
from collage_evo.errors import CollageError
from collage_evo.fitness.jobs import Written
from collage_evo.fitness.machine import PlacementEvaluator
from collage_evo.genome.failure import Failure
from collage_evo.genome.outcome import Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement
from collage_evo.pruning import UNPUBLISHED
from collage_evo.report.so_far import describe_so_far
from collage_evo.report.words import format_engine, format_ms, title
from collage_evo.run.context import RunContext
from collage_evo.run.objectives import further_bounds
from collage_evo.run.search import Placed
from collage_evo.runtime.manifest import read_infos


class Publisher:
    """Publishes answers of a run as they are found. Thread-safe.

    The answer of an earlier final comparison stays until the next one. ``on_published`` is called after each answer.
    ``placed`` is the last one, if it is a placement.
    """

    def __init__(self, run: RunContext, delivery: Delivery) -> None:
        self.on_published: Callable[[], object] = lambda: None
        self.placed: Placed | None = None
        self._run, self._delivery = run, delivery
        self._changing = threading.Lock()
        self._numbers = itertools.count(1)
        self._known = read_so_far(delivery.best)
        self._final = self._known is None and delivery.best.exists()
        self._library, self._library_ms = "", 0.0
        self._pending: list[threading.Event] = []

    @property
    def comparable(self) -> bool:
        """Whether the answer was in no final comparison, and is a baseline or known as ``placed``."""
        (info,) = read_infos(self._delivery.best)
        keys = [None, *([self.placed.placement.key] if self.placed else [])]
        return ANSWER not in info and info.get("key") in keys

    def offer_baselines(self, measured: Sequence[Baseline]) -> None:
        """Publish the best of ``measured`` if it is faster than the answer so far."""
        self._compare_with(measured)
        budget, further = self._run.limits.budget, further_bounds(self._run)
        measured = [one for one in measured if one.outcome.keeps(further)]
        single = best_single(measured, budget) if any(one.keeps(budget) for one in measured) else None
        if single is None or (ms := single.outcome.latency_ms) is None:
            return
        with self._changing:
            first = self._known is None and not self._final
            if not self._faster(ms):
                return
            self._publish(single.artifact, self._so_far(ms, single.outcome.error, Evidence.BASELINE))
        since = time.monotonic() - self._run.begin
        name = format_engine(single.backend, single.variant)
        if first:
            self._run.seconds["first answer at"] = since
            self._run.reporter.log(
                f"first answer after {since:.0f} s: {name}, {format_ms(ms)} ms, checked, in {self._delivery.best}; "
                "the search for a faster one goes on"
            )
        else:
            self._log(f": {name}")

    def withdraw(self, single: Baseline) -> None:
        """Publish ``single`` in place of a faster answer, which exceeds the budget."""
        with self._changing:
            ms = single.outcome.latency_ms or 0.0
            self._publish(single.artifact, self._so_far(ms, single.outcome.error, Evidence.BASELINE))
        self._log(f": {format_engine(single.backend, single.variant)}")

    def _compare_with(self, measured: Sequence[Baseline]) -> None:
        """Name the library that answers are compared with: the first of ``measured`` that runs in float32."""
        first = next((one for one in measured if one.exact and one.outcome.latency_ms is not None), None)
        if first is not None and first.outcome.latency_ms is not None:
            self._library, self._library_ms = title(first.backend), first.outcome.latency_ms

    @contextlib.contextmanager
    def following(self, evaluator: PlacementEvaluator, space: SearchSpace) -> Iterator[None]:
        """Publish what the ``evaluator`` measures meanwhile, see :meth:`offers`, before it ends."""
        evaluator.listen(self.offers(evaluator, space))
        yield
        self.finish()

    def offers(self, evaluator: PlacementEvaluator, space: SearchSpace) -> Callable[[Placement, Outcome], None]:
        """A function that publishes a measured placement of ``space`` if it is faster than the answer so far.

        A process of the ``evaluator`` writes it, meanwhile the search goes on.
        """
        aimed, further = [float("inf")], further_bounds(self._run)

        def offer(placement: Placement, outcome: Outcome) -> None:
            ms = outcome.latency_ms
            exact = arithmetics(placement, space) == EXACT
            allowed = self._run.limits.allows(outcome.error, exact) and outcome.keeps(further)
            if ms is None or outcome.rough or outcome.contended or not allowed:
                return
            with self._changing:
                if ms >= aimed[0] or not self._faster(ms):
                    return
                aimed[0] = ms
            artifact = self._run.work / f"so-far-{next(self._numbers)}.collage"
            so_far = self._so_far(ms, outcome.error, Evidence.SEARCH)
            published = threading.Event()
            self._pending.append(published)
            placed = Placed(space.graph, placement)
            written = partial(self._written, artifact, so_far, placed, published)
            evaluator.write(placement, artifact).add_done_callback(written)

        return offer

    def finish(self) -> None:
        """Wait until what is being written is published: an evaluator that ends would leave it out."""
        while self._pending:
            self._pending.pop().wait()

    def _written(
        self,
        artifact: Path,
        so_far: SoFar,
        placed: Placed,
        published: threading.Event,
        future: Future[Written | Failure],
    ) -> None:
        """Publish ``artifact``, which the search went on without."""
        try:
            if future.cancelled() or isinstance(future.result(), Failure):
                return
            with self._changing:
                if not self._faster(so_far.latency_ms):
                    return
                self._publish(artifact, so_far, placed)
            self._log()
        except (OSError, CollageError) as error:  # of a full disk the search itself will tell
            self._run.tell("the best answer so far could not be written", str(error))
        finally:
            shutil.rmtree(artifact, ignore_errors=True)
            published.set()

    def _faster(self, ms: float) -> bool:
        return not self._final and (self._known is None or ms < UNPUBLISHED.number * self._known.latency_ms)

    def _so_far(self, ms: float, error: float | None, evidence: Evidence) -> SoFar:
        return SoFar(ms, error, evidence, self._library, self._library_ms)

    def _publish(self, artifact: Path, so_far: SoFar, placed: Placed | None = None) -> None:
        self._delivery.put(artifact, info=so_far.info)
        self._known, self.placed = so_far, placed
        self.on_published()

    def _log(self, name: str = "") -> None:
        if self._known is not None:
            since = time.monotonic() - self._run.begin
            self._run.reporter.log(f"best so far, after {since:.0f} s{name}: {describe_so_far(self._known)}")
