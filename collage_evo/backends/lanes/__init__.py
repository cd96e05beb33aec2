"""Regions that run side by side: takes another backend's pieces for one thread, gives one for all cores.

A region that runs side by side on several cores is a match of one more backend, ``backends/lanes/``. So nothing of
the search knows of lanes: such a region is measured as a whole, beside its neighbours and with all its handoffs,
and chosen like any other. The backend stands on others: a cut makes a plan and a model for each part, another
backend (the engine, in the variant's name) builds these for the threads of a lane, one or more, and at run time
each lane takes its own steps in order. An engine with several can be told their cores (``KeepsToCores.keeping_to``);
which widths there are depends on the target's threads (``StandsOnOthers.on_threads``).

- ``patterns.py``: which regions are tried: blocks with branches
- ``cut.py``, ``assign.py``, ``work.py``, ``estimate.py``: which operator runs in which lane, and which make one part,
  by times that nobody has measured
- ``plan.py``: parts as plain data, in ``plan.json``; what must come before what, and the fewest handoffs for that
- ``load.py``, ``run.py``: a bound region: its inner memory; what each lane calls, waits for and signals; what happens
  when a lane fails
- ``lane_threads.py``: the threads: one crew for each calling thread, which is lane 0; asleep between regions
- ``backend.py``: engines, building and loading of the parts

A handoff is a lock that one lane opens and another takes. A lane that fails opens all of them, every lane stops at
its next wait, and the caller gets the error once all have stopped; a lane that hangs is ended as any hang is, with
its process. A backend whose parts are to run in lanes lets go of Python's lock during a call, which conformance
tells.

As a backend that ``StandsOnOthers``, lanes are no baseline and no fall-back, and take no part on one thread.

Whether a region can be cut is asked twice. Enumeration asks of a set of the model's nodes, so that little is
proposed that would not be built; no model is written for that. Building cuts the region itself, in another process,
for the target's number of lanes.

Branches are the one way of cutting. Parts of feature maps, channels, columns or samples in each lane were tried and
left out: SqueezeNet and MobileNet v2 cut by rows took 1.1 to 1.2 times what the library takes on both cores.
So were Concats into which lanes write in place: simulated on 2, 8 and 64 cores, schedules are as long without.
"""

from collage_evo.backends.lanes.backend import LanesBackend

__all__ = ["LanesBackend"]
