"""The table of one task: takes entrants and their turns, gives who is how fast, and within which budget."""

from __future__ import annotations

from collections.abc import Sequence

from turns import Rounds, median_ms, ratio

from contest.entrants import Entrant
from contest.judge import Loss, judged
from contest.task import Task

FLOAT32 = ("onnxruntime f32", "openvino f32")
"""Of these the faster one is what the others are compared with, and the first one's scores are what is right."""
OURS = "ours"


def tell(task: Task, said: Sequence[Entrant], rounds: Rounds) -> str:
    """A line for each entrant, then for each budget who keeps it and is fastest, and how we stand to that."""
    base = min((name for name in FLOAT32 if name in rounds), key=lambda name: median_ms(rounds, name))
    right = next(entrant.scores for entrant in said if entrant.name == FLOAT32[0])
    assert right is not None
    losses = {e.told: judged(e.scores, right) for e in said if e.scores is not None}
    kind = f"drop of {task.metric}, {right.mean():.4f} in float32" if task.metric else "relative 2-norm error"
    lines = [
        f"\n{task.name}: {kind}, {len(right)} held-out samples",
        f"{'':36} {'ms':>8} {f'{base} / it':>26} {'lost':>28} {'found in s':>10}  keeps",
    ]
    lines += [_line(task, entrant, rounds, base, losses) for entrant in said]
    lines += [_best(task, budget, said, rounds, losses) for budget in task.budgets]
    return "\n".join(lines)


def _line(task: Task, entrant: Entrant, rounds: Rounds, base: str, losses: dict[str, Loss]) -> str:
    if entrant.told not in losses:
        return f"{entrant.told:36} {entrant.found.reason:.150}"
    lost = losses[entrant.told]
    kept = " ".join(f"{_mark(lost, budget)}{budget:g}" for budget in task.budgets)
    figures = f"{lost.value:.2e} [{lost.low:.2e}, {lost.high:.2e}]"
    gain = str(ratio(rounds, base, entrant.told))
    ms = median_ms(rounds, entrant.told)
    return f"{entrant.told:36} {ms:8.3f} {gain:>26} {figures:>28} {entrant.found.seconds:10.0f}  {kept}"


def _mark(lost: Loss, budget: float) -> str:
    """Kept, kept or broken as far as these samples tell, broken."""
    if lost.low <= budget < lost.high:
        return "?" if lost.value <= budget else "!?"
    return "" if lost.value <= budget else "!"


def _best(task: Task, budget: float, said: Sequence[Entrant], rounds: Rounds, losses: dict[str, Loss]) -> str:
    """The fastest others and the fastest of ours that keep ``budget``, asked for it or for no budget at all."""
    keeping = [e for e in said if e.told in losses and losses[e.told].value <= budget and e.budget in (None, budget)]
    others = [e.told for e in keeping if not _is_ours(e)]
    best = min(others, key=lambda name: median_ms(rounds, name))
    line = f"at {budget:g}: {best} {median_ms(rounds, best):.3f} ms"
    for entrant in (e for e in said if _is_ours(e) and e.budget == budget):
        if entrant not in keeping:
            line += f"; {entrant.name}: breaks it" if entrant.told in losses else f"; {entrant.name}: no answer"
            continue
        gain = ratio(rounds, best, entrant.told)
        line += f"; {entrant.name} {median_ms(rounds, entrant.told):.3f} ms, {gain} times as fast"
    return line


def _is_ours(entrant: Entrant) -> bool:
    return entrant.name.split(",")[0] == OURS
