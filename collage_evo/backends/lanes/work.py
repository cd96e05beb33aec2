"""A region's work as lanes see it: takes a graph, gives times, who waits for whom, and when lanes would be done."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from collage_evo.backends.lanes.estimate import USUAL, Charges, node_ms
from collage_evo.backends.lanes.free import Free, free_nodes, makers
from collage_evo.graph.ir import Graph, NodeSet, members


@dataclass(frozen=True)
class Flow:
    """A tensor that nodes hand on: ms that it takes to convert it at a border of those who make and who read it."""

    makers: tuple[tuple[int, float], ...]
    """Nodes with the ms of what each of them makes of it."""
    readers: tuple[int, ...]
    ms: float
    returned: bool


@dataclass(frozen=True)
class Joint:
    """A Concat or Split: it takes ``ms`` in the piece in which it lies, and nothing between pieces.

    ``ends``, those that make or read its parts, lie in several pieces where it is between them; none of these has any
    of ``others``.
    """

    ms: float
    ends: tuple[int, ...]
    others: tuple[int, ...]


@dataclass(frozen=True)
class Work:
    """Nodes that run, their ms on a lane's cores, and for each the ones it waits for and those that wait for it.

    ``free`` are nodes that do not run, because their tensors lie inside each other.
    """

    graph: Graph
    nodes: tuple[int, ...]
    ms: tuple[float, ...]
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    flows: tuple[Flow, ...]
    joints: tuple[Joint, ...]
    free: Mapping[int, Free]
    charges: Charges

    @classmethod
    def of(cls, graph: Graph, ms: Sequence[float] | None = None, charges: Charges = USUAL) -> Work:
        """The work of all of ``graph``; ``ms`` are of its nodes where they are known, else estimated."""
        free = free_nodes(graph)
        nodes = tuple(node.index for node in graph.nodes if node.index not in free)
        before: list[tuple[int, ...]] = [()] * len(graph.nodes)
        after: list[list[int]] = [[] for _ in graph.nodes]
        for index in nodes:
            read = {maker for name in graph.nodes[index].inputs for maker in makers(graph, name, free)}
            before[index] = tuple(sorted(read))
            for maker in before[index]:
                after[maker].append(index)
        ms = node_ms(graph) if ms is None else tuple(ms)
        flows = tuple(_flows(graph, free, charges))
        joints = tuple(_joint(graph, index, ms[index], free) for index in free)
        return cls(graph, nodes, ms, tuple(before), tuple(map(tuple, after)), flows, joints, free, charges)

    @property
    def serial_ms(self) -> float:
        """One call in one lane, in which Concats and Splits copy."""
        ends = sum(flow.ms for flow in self.flows if flow.returned or not flow.makers)
        return self.charges.call_ms + ends + sum(self.ms)


def _joint(graph: Graph, index: int, ms: float, free: Mapping[int, Free]) -> Joint:
    node = graph.nodes[index]
    made = tuple(sorted({maker for name in node.inputs for maker in makers(graph, name, free)}))
    read = tuple(reader for name in node.outputs for reader in graph.consumers.get(name, ()) if reader not in free)
    return Joint(ms, made, read) if node.op_type == "Concat" else Joint(ms, read, made)


def _flows(graph: Graph, free: Mapping[int, Free], charges: Charges) -> Iterable[Flow]:
    names = [*graph.inputs, *(name for node in graph.nodes for name in node.outputs if name)]
    for name in names:
        nbytes = graph.tensors[name].nbytes
        readers = tuple(index for index in graph.consumers.get(name, ()) if index not in free)
        sources = sorted(set(makers(graph, name, free)))
        if readers or name in graph.outputs:
            ms = nbytes / charges.border_bytes_per_ms
            shares = tuple((index, ms / len(sources)) for index in sources)
            yield Flow(shares, readers, ms, name in graph.outputs)


@dataclass(frozen=True)
class Groups:
    """Nodes that run as one piece each. ``before`` are groups that one waits for; ``ms`` has its borders in it."""

    nodes: tuple[NodeSet, ...]
    lane: tuple[int, ...]
    ms: tuple[float, ...]
    before: tuple[frozenset[int], ...]
    handoff_ms: float

    @classmethod
    def of(cls, work: Work, nodes: Sequence[NodeSet], lane: Sequence[int]) -> Groups:
        """``nodes`` as groups in the lanes ``lane``; all of ``work`` is in one of them each."""
        owner = [0] * len(work.ms)
        for group, inside in enumerate(nodes):
            for index in members(inside):
                owner[index] = group
        ms = [work.charges.call_ms] * len(nodes)
        before: list[set[int]] = [set() for _ in nodes]
        for index in work.nodes:
            group = owner[index]
            ms[group] += work.ms[index]
            before[group].update(owner[maker] for maker in work.before[index])
        for flow in work.flows:
            sources = {owner[index] for index, _ in flow.makers}
            readers = {owner[index] for index in flow.readers}
            if flow.returned or not flow.makers or len(sources | readers) > 1:
                for index, share in flow.makers:
                    ms[owner[index]] += share
                for group in readers if len(sources) > 1 else readers - sources:
                    ms[group] += flow.ms
        for joint in work.joints:
            ends = {owner[index] for index in joint.ends}
            for group in ends if len(ends) == 1 else ends & {owner[index] for index in joint.others}:
                ms[group] += joint.ms
        waits = tuple(frozenset(others - {group}) for group, others in enumerate(before))
        return cls(tuple(nodes), tuple(lane), tuple(ms), waits, work.charges.handoff_ms)

    def timeline(self) -> Timeline | None:
        """When each group would run: of those that may, the one that can begin first, then the most urgent one.

        None where groups wait for each other in a circle.
        """
        after: list[list[int]] = [[] for _ in self.nodes]
        waiting = [len(before) for before in self.before]
        for group, before in enumerate(self.before):
            for maker in sorted(before):
                after[maker].append(group)
        urgency = self._urgency(after)
        if urgency is None:
            return None
        idle_from = [0.0] * (max(self.lane) + 1)
        ready_at = [0.0] * len(self.nodes)
        queues: list[list[tuple[float, float, int]]] = [[] for _ in idle_from]

        def enqueue(group: int) -> None:
            heapq.heappush(queues[self.lane[group]], (ready_at[group], -urgency[group], group))

        for group, missing in enumerate(waiting):
            if not missing:
                enqueue(group)
        order: list[int] = []
        while any(queues):
            start, _, lane = min(
                (max(idle_from[lane], queue[0][0]), queue[0][1], lane) for lane, queue in enumerate(queues) if queue
            )
            group = _most_urgent(queues[lane], start)
            idle_from[lane] = start + self.ms[group]
            order.append(group)
            for other in after[group]:
                handoff = self.handoff_ms if self.lane[other] != lane else 0.0
                ready_at[other] = max(ready_at[other], idle_from[lane] + handoff)
                waiting[other] -= 1
                if not waiting[other]:
                    enqueue(other)
        return Timeline(tuple(order), max(idle_from))

    def _urgency(self, after: Sequence[Sequence[int]]) -> list[float] | None:
        """Upward rank (Topcuoglu et al., HEFT, 2002): ms from a group's beginning to the end of all that follows."""
        rank = list(self.ms)
        waiting = [len(others) for others in after]
        ready = [group for group, missing in enumerate(waiting) if not missing]
        for group in ready:
            for maker in sorted(self.before[group]):
                handoff = self.handoff_ms if self.lane[maker] != self.lane[group] else 0.0
                rank[maker] = max(rank[maker], self.ms[maker] + handoff + rank[group])
                waiting[maker] -= 1
                if not waiting[maker]:
                    ready.append(maker)
        return rank if len(ready) == len(rank) else None


def _most_urgent(queue: list[tuple[float, float, int]], start: float) -> int:
    """Takes from ``queue`` the group with the highest rank of those that are ready at ``start``."""
    best = min((entry for entry in queue if entry[0] <= start), key=lambda entry: entry[1:])
    queue.remove(best)
    heapq.heapify(queue)
    return best[2]


@dataclass(frozen=True)
class Timeline:
    """An order in which groups could run one after the other, and ms until all lanes are done."""

    order: tuple[int, ...]
    makespan_ms: float
