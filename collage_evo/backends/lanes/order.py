"""What must come before what: takes a plan, gives for each step those before it, and where lanes must wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from collage_evo.backends.lanes.plan import Copy, LanePlan, Part
from collage_evo.graph.ir import members, node_set

StepSet = int
"""A set of steps as a bitmask: bit ``i`` stands for ``plan.steps[i]``."""


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
        found: list[StepSet] = []
        last: dict[int, int] = {}
        for index, step in enumerate(self.plan.steps):
            direct = self.needs[index] | (1 << last[step.lane] if step.lane in last else 0)
            known = direct
            for other in members(direct):
                known |= found[other]
            found.append(known)
            last[step.lane] = index
        return tuple(found)

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


class _Makers:
    """Which steps make a tensor: itself, all parts of it, or one that it is a part of."""

    def __init__(self, plan: LanePlan) -> None:
        self._plan = plan
        self._children: dict[str, list[str]] = {}
        for name, view in plan.views.items():
            self._children.setdefault(view.parent, []).append(name)
        self._direct = self._direct_makers()
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
        if name in self._direct:
            return self._direct[name]
        views = self._plan.views
        inner = ((child, self._made_within(child)) for child in self._children.get(name, ()))
        found = {child: made for child, made in inner if made is not None}
        pieces = sorted((views[child].axis, views[child].start, views[child].stop) for child in found)
        if not found or not _tile(pieces, self._plan.tensors[name].shape):
            return None
        result = 0
        for made in found.values():
            result |= made
        return result

    def _direct_makers(self) -> Mapping[str, StepSet]:
        """Tensors that parts make, portions, and those that joins make between them."""
        found: dict[str, StepSet] = {}
        joins: dict[str, list[tuple[int, Copy]]] = {}
        for index, step in enumerate(self._plan.steps):
            if isinstance(step, Copy) and step.join:
                joins.setdefault(step.target, []).append((index, step))
                continue
            for name in use_of(step).makes:
                if name in found:
                    raise ValueError(f"{name} is made twice")
                found[name] = 1 << index
        for name, copies in joins.items():
            pieces = sorted((copy.axis, copy.start, copy.stop) for _, copy in copies)
            if name in found or not _tile(pieces, self._plan.tensors[name].shape):
                raise ValueError(f"{name} is not joined from parts that make it once")
            found[name] = node_set(index for index, _ in copies)
        return found

    def _require_once(self, name: str) -> bool:
        """Whether any step makes ``name`` or a part of it.

        Raises:
            ValueError: two make the same part.
        """
        views = self._plan.views
        inner = [child for child in self._children.get(name, ()) if self._require_once(child)]
        places = sorted((views[child].start, views[child].stop) for child in inner)
        one_axis = len({views[child].axis for child in inner}) <= 1
        if not one_axis or any(stop > start for (_, stop), (start, _) in pairwise(places)):
            raise ValueError(f"parts of {name} are made twice")
        if name in self._direct and inner:
            raise ValueError(f"{name} is made, and parts of it again")
        return bool(inner) or name in self._direct


def _tile(pieces: Sequence[tuple[int, int, int]], shape: tuple[int, ...]) -> bool:
    """Whether sorted ``pieces``, axis, start and stop of each, make up all of ``shape`` without overlap."""
    axes = {axis for axis, _, _ in pieces}
    if len(axes) != 1:
        return False
    ends = [0, *(stop for _, _, stop in pieces)]
    starts = [*(start for _, start, _ in pieces), shape[pieces[0][0]]]
    return ends == starts
