"""Backends on NVIDIA GPUs, and PyTorch on the CPU too.

A class for each library on a GPU; ``libraries/`` joins it with the class of the same library for the CPU.

A piece runs on the device of its variant, and one program may mix pieces of several. ``route.py`` describes
such a program as plain data: calls, copies and waits.

- A tensor has a buffer in each memory where a piece makes or reads it, and each memory is planned by itself. The
  model's inputs and outputs are on the host, in page-locked memory.
- A tensor is copied to the other memory once, after the piece that makes it, if a piece there reads it.
- The device works through its stream in order, and the host does not wait for it, except before a host piece that
  reads a result of the device, and at the end. So a run is timed from host to host.
- The source of a copy to the device stays alive until the next wait: until then the copy may not have read it.

``work.py`` turns these steps into calls. The first run executes everything twice on the given inputs:
libraries allocate and tune then. After that it captures each uninterrupted row of the device's calls and copies as
one launch. If a row cannot be captured, each of its pieces is tried by itself, and those that cannot be captured run
without, between captures of the others. Then the model runs on zeros, which leaves nothing of its inputs in
libraries' own memory, all of the device's memory is filled with zeros, and a replay on the inputs has to reproduce
the earlier run (within 1 %). Otherwise nothing is captured. ``Session.notes`` lists what runs without captures and
why; the result holds the notes of the answer and of its rivals in the final race, since single kernel launches may by
themselves lose it.

``run_on_device`` takes arrays of the device (anything with ``__dlpack__``) and returns new ones. Only tensors that a
host piece reads or makes go through the host. A process has one device with one stream, so sessions take turns,
whichever thread calls them. ``close`` waits for the device, and releases captures before the buffers that they use.
"""

PACKAGE = "collage-evo-cuda"
"""The distribution, whose extras install the libraries."""
