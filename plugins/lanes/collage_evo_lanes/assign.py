"""Scheduling of a region's nodes: the lane of each node, and the groups that run as one piece.

Clusters stay in one lane: the longest paths (linear clustering: Kim and Browne, 1988; Gerasoulis and Yang, 1993).
Lanes are filled in the order of upward ranks (HEFT: Topcuoglu et al., 2002), then single clusters change lanes while
that makes the whole shorter.
The schedule's time is computed by pieces: few large ones are better than perfect balance.
"""

from __future__ import annotations

from collections.abc import Sequence

from collage_evo.graph.ir.graph import NodeSet, members
from collage_evo_lanes.work import Groups, Timeline, Work

EFFORT = 150_000
"""Nodes looked at by trial schedules: about a second."""

BUSY_WEIGHT = 0.01
"""Weight of a ms of work in any lane relative to a ms until all are done: of schedules that take equally long, the
one with fewer borders is better."""


def schedule(work: Work, lanes: int, effort: int = EFFORT) -> tuple[Groups, Timeline]:
    """The work of a region as pieces in at most ``lanes`` lanes, with their timeline."""
    return _merged(work, _climbed(work, linear_clusters(work), lanes, effort))


def _climbed(work: Work, clusters: Sequence[NodeSet], lanes: int, effort: int) -> Groups:
    """Hill climbing: pieces of ``clusters`` in lanes, after moves of single clusters that improved the schedule."""
    lane = _earliest_finish(work, clusters, lanes)
    best = _judged(work, clusters, lane)
    left = effort // max(1, len(work.ms))
    improved = True
    while improved and left > 0:
        improved = False
        for cluster in range(len(clusters)):
            for other in range(min(lanes, max(lane) + 2)):
                if other == lane[cluster] or left <= 0:
                    continue
                left -= 1
                moved = [*lane[:cluster], other, *lane[cluster + 1 :]]
                score = _judged(work, clusters, moved)
                if score < best - 1e-9:
                    lane, best, improved = moved, score, True
    return _grouped(work, _lane_of(work, clusters, lane))


def linear_clusters(work: Work) -> tuple[NodeSet, ...]:
    """Paths that cover all nodes: the longest one, then the longest one in the remaining nodes, and so on."""
    left = set(range(len(work.ms)))
    clusters = []
    while left:
        path = _longest_path(work, left)
        clusters.append(sum(1 << index for index in path))
        left.difference_update(path)
    return tuple(clusters)


def _longest_path(work: Work, left: set[int]) -> list[int]:
    """The path of most ms through ``left``, edges counted as handoffs."""
    length: dict[int, float] = {}
    onward: dict[int, int] = {}
    for index in sorted(left, reverse=True):
        after = [other for other in work.after[index] if other in left]
        onward[index] = max(after, key=lambda other: (length[other], -other), default=-1)
        rest = length[onward[index]] + work.charges.handoff_ms if after else 0.0
        length[index] = work.ms[index] + rest
    here = max(sorted(left), key=lambda index: (length[index], -index))
    path = []
    while here >= 0:
        path.append(here)
        here = onward[here]
    return path


def _earliest_finish(work: Work, clusters: Sequence[NodeSet], lanes: int) -> list[int]:
    """A lane for each cluster, by upward rank of its first node: the one in which it would finish first."""
    rank = [0.0] * len(work.ms)
    for index in reversed(range(len(work.ms))):
        rank[index] = work.ms[index] + max((rank[other] for other in work.after[index]), default=0.0)
    first = [min(members(cluster)) for cluster in clusters]
    order = sorted(range(len(clusters)), key=lambda cluster: (-rank[first[cluster]], cluster))
    total = max(rank)
    lane = [0] * len(clusters)
    idle_from = [0.0] * lanes
    for cluster in order:
        ready = total - rank[first[cluster]]
        spent = sum(work.ms[index] for index in members(clusters[cluster]))
        lane[cluster] = min(range(lanes), key=lambda k: (max(idle_from[k], ready), k))
        idle_from[lane[cluster]] = max(idle_from[lane[cluster]], ready) + spent
    return _renumbered(lane, order)


def _renumbered(lane: Sequence[int], order: Sequence[int]) -> list[int]:
    """Lanes in the order in which they are first used."""
    names: dict[int, int] = {}
    for cluster in order:
        names.setdefault(lane[cluster], len(names))
    return [names[old] for old in lane]


def _lane_of(work: Work, clusters: Sequence[NodeSet], lane: Sequence[int]) -> list[int]:
    found = [0] * len(work.ms)
    for cluster, nodes in enumerate(clusters):
        for index in members(nodes):
            found[index] = lane[cluster]
    return found


def _judged(work: Work, clusters: Sequence[NodeSet], lane: Sequence[int]) -> float:
    groups = _grouped(work, _lane_of(work, clusters, lane))
    return _score(groups, _timeline(groups))


def _timeline(groups: Groups) -> Timeline:
    timeline = groups.timeline()
    assert timeline is not None  # groups by handoffs never wait for each other in a circle
    return timeline


def _score(groups: Groups, timeline: Timeline) -> float:
    return timeline.makespan_ms + BUSY_WEIGHT * sum(groups.ms)


def _grouped(work: Work, lane: Sequence[int]) -> Groups:
    """Pieces of the nodes in one lane that have equally many handoffs before and behind, on the paths with the most.

    Along an edge the first number never falls and the second never rises, and between lanes both change: so no piece
    waits for itself by way of others, none begins later than what it needs, and none ends later than it is needed.
    """
    count = len(work.ms)
    behind, ahead = [0] * count, [0] * count
    for index in range(len(work.ms)):
        for maker in work.before[index]:
            behind[index] = max(behind[index], behind[maker] + (lane[maker] != lane[index]))
    for index in reversed(range(len(work.ms))):
        for reader in work.after[index]:
            ahead[index] = max(ahead[index], ahead[reader] + (lane[reader] != lane[index]))
    found: dict[tuple[int, int, int], NodeSet] = {}
    for index in range(len(work.ms)):
        key = (behind[index], -ahead[index], lane[index])
        found[key] = found.get(key, 0) | 1 << index
    return Groups.of(work, list(found.values()), [key[2] for key in found])


def _merged(work: Work, groups: Groups) -> tuple[Groups, Timeline]:
    """Join consecutive pieces of a lane as long as the whole takes no longer."""
    timeline = _timeline(groups)
    best = _score(groups, timeline)
    refused: set[tuple[NodeSet, NodeSet]] = set()
    while (pair := _next_pair(groups, timeline, refused)) is not None:
        one, other = pair
        refused.add((groups.nodes[one], groups.nodes[other]))
        nodes, lane = list(groups.nodes), list(groups.lane)
        nodes[one] |= nodes[other]
        del nodes[other], lane[other]
        joined = Groups.of(work, nodes, lane)
        trial = joined.timeline()
        if trial is not None and _score(joined, trial) < best:
            groups, timeline, best = joined, trial, _score(joined, trial)
    return groups, timeline


def _next_pair(groups: Groups, timeline: Timeline, refused: set[tuple[NodeSet, NodeSet]]) -> tuple[int, int] | None:
    """The first two consecutive pieces of a lane that are not in ``refused``."""
    last: dict[int, int] = {}
    for group in timeline.order:
        before = last.get(groups.lane[group])
        if before is not None and (groups.nodes[before], groups.nodes[group]) not in refused:
            return before, group
        last[groups.lane[group]] = group
    return None
