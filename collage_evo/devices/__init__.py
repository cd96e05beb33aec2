"""Devices beside the processor: their memory, their stream of work, what was captured of it, their clocks.

A piece runs on the device of its variant, and the pieces of one program may be mixed. ``runtime/route.py`` writes
down as plain data what such a program does: calls, copies and waits.

- A tensor has a buffer in each memory where somebody makes or reads it, and each memory is planned by itself. The
  model's inputs and outputs lie on the host, in page-locked memory.
- Who makes a tensor copies it on to the other memory, once, if somebody there reads it.
- The device works through its stream in order, and the host does not wait for it, except before a piece of its own
  that reads what the device made, and at the end. So a run is timed from host to host.
- The source of a copy to the device stays alive until the next wait: until then it may not have been read.

``runtime/device_work.py`` makes calls of these steps. The first run runs everything twice on the inputs that were
given: libraries allocate and tune then. After that it captures each row of the device's calls and copies that
nothing interrupts, as one launch. If a row cannot be captured, each of its pieces is tried alone, and those that
cannot be captured run as they are, between captures of the others. Then the model runs on zeros, which leaves
nothing of its inputs in libraries' own memory, all of the device's memory is filled with zeros, and a replay on the
inputs again has to give what the run before gave (within 1 %), because work on a stream of its own would not be in
the capture, and nobody would see that the outputs are old ones. Otherwise nothing is captured. ``Session.notes``
says what runs without captures and why; the notes of the answer and of its rivals in the final race are in the
result, since who launches kernels one by one may lose by that alone.

Pieces that do not need each other may run at the same time. All is captured on one stream, as before, but what is
captured next depends on the nodes that ``Device.side_by_side`` names, not on what was captured just before (CUDA's
``cuStreamUpdateCaptureDependencies``): the graph then has branches, and no backend has to know of streams and
events. ``waits_of`` says who waits for whom: a piece for those that make what it reads, and, where a library's
pieces share memory (``OnDevice.pieces_share_memory``), for the one before it; copies in one direction for each
other. A region of cuDNN names the steps inside it in the same way. Memory is planned for every order that this
allows. Branches are not always faster, so the model is captured both ways, whole runs take turns for 0.2 seconds at
the end of the first run, and the faster way stays. The branching way has to give the same outputs, else a note says
so and it is dropped. Predictions know nothing of it: the additive model adds up what runs at the same time, the
search corrects that by measuring.

``run_on_device`` takes arrays of the device (anything with ``__dlpack__``) and gives new ones. Only what a piece of
the host reads or makes goes by way of the host. A process has one device with one stream, so sessions take turns,
whichever thread calls them. ``close`` waits for the device, and lets go of captures before the buffers that they
use.
"""
