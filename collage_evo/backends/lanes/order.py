"""What must come before what: takes a plan, gives for each step those before it, and where lanes must wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from operator import or_

from collage_evo.backends.lanes.plan import Copy, LanePlan, Part, View
from collage_evo.graph.ir import members
from collage_evo.graph.memory import StepSet, all_before


@dataclass(frozen=True)
class Use:
    """What a step does with tensors."""

    reads: tuple[str, ...]
    makes: tuple[str, ...]


def use_of(step: Part | Copy) -> Use:
    """The tensors that ``step`` reads and those that it makes, or makes a part of."""
    return Use(step.inputs, step.outputs) if isinstance(step, Part) else Use((step.source,), (step.target,))


@dataclass(frozen=True)
class Order:
    """``needs``: for each step those that make what it reads. ``before``: all that come before it in every order that
    these and the sequence of each lane allow."""

    plan: LanePlan
    needs: tuple[StepSet, ...]

    @cached_property
    def before(self) -> tuple[StepSet, ...]:
        waits: list[list[int]] = []
        last: dict[int, int] = {}
        for index, step in enumerate(self.plan.steps):
            waits.append([*members(self.needs[index]), *([last[step.lane]] if step.lane in last else [])])
            last[step.lane] = index
        return all_before(waits)

    def handoffs(self) -> tuple[tuple[int, ...], ...]:
        """For each step the steps of other lanes that its lane waits for: no wait that another one implies.

        At most one of each lane.
        """
        steps = self.plan.steps
        waits: list[tuple[int, ...]] = []
        known: dict[int, StepSet] = {}
        for index, step in enumerate(steps):
            done = known.get(step.lane, 0)
            chosen = []
            for other in sorted(members(self.needs[index] & ~done), reverse=True):
                if steps[other].lane != step.lane and not done >> other & 1:
                    chosen.append(other)
                    done |= 1 << other | self.before[other]
            known[step.lane] = done | 1 << index
            waits.append(tuple(chosen))
        return tuple(waits)


def order_of(plan: LanePlan) -> Order:
    """What must come before what.

    Raises:
        ValueError: a tensor is read that nothing before makes whole, or is made twice, or an input is; or an output
            is not made.
    """
    makers = _Makers(plan)
    needs = []
    for index, step in enumerate(plan.steps):
        need = 0
        for name in use_of(step).reads:
            need |= makers.of(name)
        if need >> index:
            raise ValueError(f"step {index} reads what no step before it makes")
        needs.append(need)
    for name in plan.outputs:
        makers.of(name)
    return Order(plan, tuple(needs))


@dataclass(frozen=True)
class _Piece:
    """Elements ``start`` to ``stop`` of ``axis`` of a tensor, and the steps that make them."""

    axis: int
    start: int
    stop: int
    makers: StepSet


class _Makers:
    """Which steps make a tensor: itself, all parts of it, or one that it is a part of."""

    def __init__(self, plan: LanePlan) -> None:
        self._plan = plan
        self._children: dict[str, list[str]] = {}
        for name, view in plan.views.items():
            self._children.setdefault(view.parent, []).append(name)
        self._whole: dict[str, StepSet] = {}
        self._joined: dict[str, list[_Piece]] = {}
        for index, step in enumerate(plan.steps):
            if isinstance(step, Copy) and step.join:
                piece = _Piece(step.axis, step.start, step.stop, 1 << index)
                self._joined.setdefault(step.target, []).append(piece)
                continue
            for name in use_of(step).makes:
                if name in self._whole:
                    raise ValueError(f"{name} is made twice")
                self._whole[name] = 1 << index
        for name in plan.tensors:
            if name not in plan.views and self._require_once(name) and name in plan.inputs:
                raise ValueError(f"a step makes the input {name}, or a part of it")

    def of(self, name: str) -> StepSet:
        """The steps after which ``name`` is there; none for an input.

        Raises:
            ValueError: it never is.
        """
        plan, outer = self._plan, name
        while True:
            if outer in plan.inputs:
                return 0
            if (made := self._made_within(outer)) is not None:
                return made
            if outer not in plan.views:
                raise ValueError(f"nothing makes {name}")
            outer = plan.views[outer].parent

    def _made_within(self, name: str) -> StepSet | None:
        """The steps that make ``name`` or, between them, all parts of it; None if there are none."""
        if name in self._whole:
            return self._whole[name]
        pieces = self._pieces(name)
        if not pieces or not _tile(pieces, self._plan.tensors[name].shape):
            return None
        return reduce(or_, (piece.makers for piece in pieces))

    def _pieces(self, name: str) -> list[_Piece]:
        """The parts of ``name`` that are joined into it or made in their place, in order."""
        found = list(self._joined.get(name, ()))
        for child in self._children.get(name, ()):
            if (made := self._made_within(child)) is not None:
                view = self._plan.views[child]
                found.append(_Piece(view.axis, view.start, view.stop, made))
        return sorted(found, key=lambda piece: piece.start)

    def _require_once(self, name: str) -> bool:
        """Whether any step makes ``name`` or a part of it.

        Raises:
            ValueError: two make the same part.
        """
        views = self._plan.views
        made = [views[child] for child in self._children.get(name, ()) if self._require_once(child)]
        inner: list[View | _Piece] = sorted((*made, *self._joined.get(name, ())), key=lambda piece: piece.start)
        if len({piece.axis for piece in inner}) > 1 or any(a.stop > b.start for a, b in pairwise(inner)):
            raise ValueError(f"parts of {name} are made twice")
        if name in self._whole and inner:
            raise ValueError(f"{name} is made, and parts of it again")
        return bool(inner) or name in self._whole


def _tile(pieces: Sequence[_Piece], shape: tuple[int, ...]) -> bool:
    """Whether ``pieces``, which do not overlap, make up all of ``shape``."""
    ends = [0, *(piece.stop for piece in pieces)]
    starts = [*(piece.start for piece in pieces), shape[pieces[0].axis]]
    return len({piece.axis for piece in pieces}) == 1 and ends == starts
