"""The table of one task: takes entrants and their turns, gives who is how fast, and within which budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from turns import Rounds, median_ms, ratio

from collage_evo.fitness.final.sequential import Ratio
from contest.entrants import Entrant
from contest.judge import Loss, judged, keeps
from contest.task import Task

FLOAT32 = ("onnxruntime f32", "openvino f32")
"""Of these the faster one is what the others are compared with, and the first one's scores are what is right."""
OURS = "ours"


@dataclass(frozen=True)
class Standing:
    """One of ours at a budget (the first is the tightest), beside the fastest of the others that keeps it.

    ``gain`` is how many times as fast it is; None without an answer, or with one that breaks the budget.
    """

    task: str
    budget: float
    rank: int
    best: str
    name: str
    gain: Ratio | None
    why: str = ""


class Table:
    """What came out for one task.

    Raises:
        ValueError: float32 itself could not be run.
    """

    def __init__(self, task: Task, said: Sequence[Entrant], rounds: Rounds) -> None:
        self.task, self.said, self.rounds = task, said, rounds
        own = [e.scores for e in said if e.name == FLOAT32[0] and e.scores is not None]
        if not own:
            raise ValueError(f"{task.name}: {FLOAT32[0]} does not run it")
        self._right = own[0]
        self._losses: Mapping[str, Loss] = {e.told: judged(e.scores, own[0]) for e in said if e.scores is not None}
        self._base = min((name for name in FLOAT32 if name in rounds), key=self._ms)

    def lines(self) -> Iterator[str]:
        """A heading, a line for each entrant, then one for each budget."""
        task = self.task
        score = f"drop of {task.metric}, {self._right.mean():.4f} in float32" if task.metric else ""
        yield f"\n{task.name}: {score or 'relative 2-norm error'}, {len(self._right)} held-out samples"
        heads = f"{'':36} {'ms':>8} {f'{self._base} / it':>26} {'lost':>28} {'found in s':>10}"
        yield f"{heads}  budgets: ! broken, ? the samples do not tell"
        yield from map(self._line, self.said)
        for rank, budget in enumerate(task.budgets):
            best = self.best(budget)
            yield f"at {budget:g}: {best} {self._ms(best):.3f} ms{''.join(map(_told, self.standings(budget, rank)))}"

    def best(self, budget: float) -> str:
        """The fastest of the others that keeps ``budget``, asked for it or for none."""
        others = (e.told for e in self.said if not _is_ours(e) and e.budget in (None, budget))
        return min((name for name in others if self._keeps(name, budget)), key=self._ms)

    def standings(self, budget: float, rank: int) -> Iterator[Standing]:
        """How each of ours does at ``budget``."""
        best = self.best(budget)
        for entrant in self.said:
            if _is_ours(entrant) and entrant.budget == budget:
                keeps = self._keeps(entrant.told, budget)
                gain = ratio(self.rounds, best, entrant.told) if keeps else None
                why = "" if keeps else entrant.found.reason or "breaks it"
                yield Standing(self.task.name, budget, rank, best, entrant.name, gain, why)

    def _keeps(self, name: str, budget: float) -> bool:
        return name in self._losses and keeps(self._losses[name].value, budget)

    def _ms(self, name: str) -> float:
        return median_ms(self.rounds, name)

    def _line(self, entrant: Entrant) -> str:
        name = entrant.told
        if name not in self._losses:
            return f"{name:36} {entrant.found.reason:.150}"
        lost = self._losses[name]
        kept = " ".join(f"{_mark(lost, budget)}{budget:g}" for budget in self.task.budgets)
        figures = f"{lost.value:.2e} [{lost.low:.2e}, {lost.high:.2e}]"
        gain = str(ratio(self.rounds, self._base, name))
        return f"{name:36} {self._ms(name):8.3f} {gain:>26} {figures:>28} {entrant.found.seconds:10.0f}  {kept}"


def summary(standings: Sequence[Standing]) -> Iterator[str]:
    """Geometric means over tasks, for each of ours and each rank of budget."""
    for name in dict.fromkeys(one.name for one in standings):
        for rank in sorted({one.rank for one in standings}):
            own = [one for one in standings if (one.name, one.rank) == (name, rank)]
            gains = [one.gain.estimate for one in own if one.gain is not None]
            mean = f"{np.exp(np.mean(np.log(gains))):.3f}" if gains else "-"
            kept = f"{len(gains)} of {len(own)} tasks"
            yield f"{name}, budget {rank + 1}: {mean} times as fast as the best other that keeps it, {kept}"


def _mark(lost: Loss, budget: float) -> str:
    """Broken or not, and whether the interval tells."""
    broken = "" if keeps(lost.value, budget) else "!"
    return f"{broken}?" if keeps(lost.low, budget) and not keeps(lost.high, budget) else broken


def _told(standing: Standing) -> str:
    if standing.gain is None:
        return f"; {standing.name}: {standing.why:.80}"
    return f"; {standing.name}: {standing.gain} times as fast"


def _is_ours(entrant: Entrant) -> bool:
    return entrant.name.split(",")[0] == OURS
