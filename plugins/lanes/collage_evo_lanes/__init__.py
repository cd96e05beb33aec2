"""Lanes: regions whose parts run side by side on several cores, each part a piece of another backend.

A region that runs side by side on several cores is a match of one more backend, this one. So the search needs no
knowledge of lanes: such a region is measured as a whole, with its neighbours and all its handoffs, and chosen like
any other. The backend stands on others: a cut makes a plan and a model for each part, another backend
(the engine, in the variant's name) builds these for the threads of a lane, one or more, and at run time each lane
runs its own steps in order. An engine with several threads takes their cores from ``KeepsToCores.keeping_to``; the
available widths depend on the target's threads (``StandsOnOthers.on_threads``).

- ``patterns.py``: candidate regions: blocks with branches
- ``cut.py``, ``assign.py``, ``work.py``, ``estimate.py``: which operator runs in which lane, and which make one part,
  by estimated times
- ``plan.py``: parts as plain data, in ``plan.json``; the order of parts, and the fewest handoffs for it
- ``memory.py``: tensors that may share memory in every order of the parts
- ``load.py``, ``run.py``: a bound region: its inner memory; the calls, waits and signals of each lane; failures
- ``lane_threads.py``: lane threads: one set for each calling thread, which is lane 0; they sleep between regions
- ``backend.py``: engines, building and loading of the parts

A handoff is a lock that one lane opens and another takes. A lane that fails opens all of them, every lane stops at
its next wait, and the caller gets the error once all have stopped; a lane that hangs ends like any hang, with its
process. A backend whose parts run in lanes must release Python's interpreter lock during a call.

As a backend that ``StandsOnOthers``, lanes are no baseline and no fallback, and take no part on one thread.

Two steps check whether a region can be cut. Enumeration checks a set of the model's nodes without writing a model, so
that it proposes little that would not be built. Building cuts the region itself, in another process, for the target's
number of lanes.

Branches are the one way of cutting. Parts of feature maps, channels, columns or samples in each lane were tried and
dropped: SqueezeNet and MobileNet v2 cut by rows took 1.1 to 1.2 times the library's time on both cores. So were
Concats into which lanes write in place: simulated on 2, 8 and 64 cores, schedules are as long without.
"""

from collage_evo_lanes.backend import LanesBackend

__all__ = ["LanesBackend"]
