"""Accelerators: their memory, their stream of work, captures of it, and their clocks.

A piece runs on the device of its variant, and one program may mix pieces of several. ``runtime/route.py`` describes
such a program as plain data: calls, copies and waits.

- A tensor has a buffer in each memory where a piece makes or reads it, and each memory is planned by itself. The
  model's inputs and outputs are on the host, in page-locked memory.
- A tensor is copied to the other memory once, after the piece that makes it, if a piece there reads it.
- The device works through its stream in order, and the host does not wait for it, except before a host piece that
  reads a result of the device, and at the end. So a run is timed from host to host.
- The source of a copy to the device stays alive until the next wait: until then the copy may not have read it.

``runtime/device_work.py`` turns these steps into calls. The first run executes everything twice on the given inputs:
libraries allocate and tune then. After that it captures each uninterrupted row of the device's calls and copies as
one launch. If a row cannot be captured, each of its pieces is tried by itself, and those that cannot be captured run
without, between captures of the others. Then the model runs on zeros, which leaves nothing of its inputs in
libraries' own memory, all of the device's memory is filled with zeros, and a replay on the inputs has to reproduce
the earlier run (within 1 %). Otherwise nothing is captured. ``Session.notes`` lists what runs without captures and
why; the result holds the notes of the answer and of its rivals in the final race, since single kernel launches may by
themselves lose it.

Independent pieces may run at the same time. All of them are captured on one stream, but the next captured work
depends on the nodes that ``Device.side_by_side`` names, not on the previous capture (CUDA's
``cuStreamUpdateCaptureDependencies``): the graph then has branches, and backends need no streams and events.
``waits_of`` defines the dependencies: a piece waits for those that make its inputs, and, where a library's pieces
share memory (``Backend.pieces_share_memory``), for the previous one; copies in one direction wait for each other. A
region of cuDNN names its inner steps in the same way. Memory is planned for every order that this allows. Branches
are not always faster, so the model is captured both ways, whole runs take turns for 0.2 seconds at the end of the
first run, and the faster way stays. The branching way has to compute the same outputs, else it is dropped with a
note. Predictions ignore it: the additive model adds up work that runs at the same time, and the search corrects that
by measuring.

``run_on_device`` takes arrays of the device (anything with ``__dlpack__``) and returns new ones. Only tensors that a
host piece reads or makes go through the host. A process has one device with one stream, so sessions take turns,
whichever thread calls them. ``close`` waits for the device, and releases captures before the buffers that they use.
"""
