"""Tables of races: speed and loss of each contestant at each budget, and geometric means over tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

from turns import median_ms, ratio

from collage_evo.answer.sequential import Ratio
from contest.entrants import Entrant
from contest.judge import Loss, judged, keeps
from contest.race import Race

FLOAT32 = ("onnxruntime f32", "openvino f32")
"""Of these the faster one is what the others are compared with, and the first one's scores are what is right."""
AS_IT_COMES = {"ONNX Runtime": "onnxruntime f32", "OpenVINO": "openvino as it comes"}
BEST = "the best other that keeps it"
OURS = "ours"


@dataclass(frozen=True)
class Standing:
    """One of ours on a task at a budget, beside the fastest of the others that keeps it and the libraries themselves.

    ``ms`` are medians by rival and, under :data:`OURS`, its own; ``gains`` says how many times as fast as each
    rival it is. Without an answer, or with one that breaks the budget, there are none, and ``why`` says so.
    """

    task: str
    budget: str
    name: str
    best: str
    ms: Mapping[str, float]
    lost: str = ""
    gains: Mapping[str, Ratio] = field(default_factory=dict)
    why: str = ""


class Table:
    """What came out for one task.

    Raises:
        ValueError: float32 itself could not be run.
    """

    def __init__(self, race: Race) -> None:
        self.task, self.entrants, self.rounds = race.task, race.entrants, race.rounds
        scored = {e.title: e.scores for e in race.entrants if e.scores is not None and e.title in race.rounds}
        if FLOAT32[0] not in scored:
            raise ValueError(f"{self.task.name}: {FLOAT32[0]} does not run it")
        self._right = scored[FLOAT32[0]]
        self._losses: Mapping[str, Loss] = {title: judged(scores, self._right) for title, scores in scored.items()}
        self._base = min((name for name in FLOAT32 if name in scored), key=self._ms)

    def lines(self) -> Iterator[str]:
        """A heading, a line for each entrant, then one for each budget."""
        task = self.task
        score = f"drop of {task.metric}, {self._right.mean():.4f} in float32" if task.metric else ""
        yield f"\n{task.name}: {score or 'relative 2-norm error'}, {len(self._right)} held-out samples"
        heads = f"{'':42} {'ms':>8} {f'{self._base} / it':>26} {'lost':>28} {'found in s':>10}"
        yield f"{heads}  budgets: ! broken, ? the samples do not tell"
        yield from map(self._line, self.entrants)
        for budget in task.budgets:
            best = self.best(budget)
            yield f"at {budget:g}: {best} {self._ms(best):.3f} ms{''.join(map(_format, self.standings(budget)))}"

    def best(self, budget: float) -> str:
        """The fastest of the others that keeps ``budget``, asked for it or for none."""
        others = (e.title for e in self.entrants if not _is_ours(e) and e.budget in (None, budget))
        return min((name for name in others if self._keeps(name, budget)), key=self._ms)

    def standings(self, budget: float) -> Iterator[Standing]:
        """How each of ours does at ``budget``."""
        best = self.best(budget)
        rivals = {BEST: best, **{label: name for label, name in AS_IT_COMES.items() if name in self._losses}}
        for entrant in self.entrants:
            if not _is_ours(entrant) or entrant.budget != budget:
                continue
            title, ms = entrant.title, {rival: self._ms(name) for rival, name in rivals.items()}
            about = (
                self.task.name, f"{'a drop' if self.task.metric else 'an error'} of {budget:g}", entrant.name, best
            )
            if title not in self._losses:
                yield Standing(*about, ms, why=entrant.result.reason or "died in its turn")
                continue
            ms[OURS], lost = self._ms(title), f"{self._losses[title].value:.2g}"
            if self._keeps(title, budget):
                gains = {rival: ratio(self.rounds, name, title) for rival, name in rivals.items()}
                yield Standing(*about, ms, lost, gains)
            else:
                yield Standing(*about, ms, lost, why="breaks it")

    def _keeps(self, name: str, budget: float) -> bool:
        return name in self._losses and keeps(self._losses[name].value, budget)

    def _ms(self, name: str) -> float:
        return median_ms(self.rounds, name)

    def _line(self, entrant: Entrant) -> str:
        name = entrant.title
        if name not in self._losses:
            return f"{name:42} {entrant.result.reason or 'died in its turn':.150}"
        lost = self._losses[name]
        budgets = " ".join(f"{_mark(lost, budget)}{budget:g}" for budget in self.task.budgets)
        figures = f"{lost.value:.2e} [{lost.low:.2e}, {lost.high:.2e}]"
        gain = str(ratio(self.rounds, self._base, name))
        return f"{name:42} {self._ms(name):8.3f} {gain:>26} {figures:>28} {entrant.result.seconds:10.0f}  {budgets}"


def summary(standings: Sequence[Standing]) -> Iterator[str]:
    """For each of ours and each budget: a row for each task in ms, and geometric means over those that it keeps."""
    for name, budget in dict.fromkeys((one.name, one.budget) for one in standings):
        rows = [one for one in standings if (one.name, one.budget) == (name, budget)]
        rivals = (*AS_IT_COMES, BEST)
        yield f"\n{name} at {budget}, ms:\n"
        yield f"| task | {' | '.join(rivals)} | which | {name} | lost | over that |"
        yield "|---" * (len(rivals) + 5) + "|"
        for one in rows:
            ms = " | ".join(f"{one.ms[r]:.4g}" if r in one.ms else "" for r in (*rivals, OURS)).rsplit(" | ", 1)
            gain = str(one.gains[BEST]) if one.gains else one.why[:80]
            yield f"| {one.task} | {ms[0]} | {one.best} | {ms[1]} | {one.lost} | {gain} |"
        yield ""
        for rival in rivals:
            gains = {one.task: one.gains[rival].estimate for one in rows if rival in one.gains}
            if gains:
                least = min(gains, key=gains.__getitem__)
                mean, tasks = geometric_mean(gains.values()), f"{len(gains)} of {len(rows)} tasks"
                yield f"{mean:.3f} times as fast as {rival}, least {gains[least]:.3f} ({least}), {tasks}"


def _mark(lost: Loss, budget: float) -> str:
    """Broken or not, and whether the interval tells."""
    broken = "" if keeps(lost.value, budget) else "!"
    return f"{broken}?" if keeps(lost.low, budget) and not keeps(lost.high, budget) else broken


def _format(standing: Standing) -> str:
    text = f"{standing.gains[BEST]} times as fast" if standing.gains else standing.why[:80]
    return f"; {standing.name}: {text}"


def _is_ours(entrant: Entrant) -> bool:
    return entrant.name.startswith(OURS)
