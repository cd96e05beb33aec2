"""Measures jobs in processes that may die, one to each timing slot, on this machine or a cluster.

``MeasuringPool`` maps jobs over joblib: over threads that wait for measuring processes on this machine, or for Dask
(docs/cluster.md). Each has a station: one timing slot, a group of cores locked by files for as long as it is open,
and one measuring process (``measure/process.py``) pinned to them. Jobs and answers are JSON lines. A
measuring process that crashes, hangs past ``fitness.timeout_s`` or grows past ``fitness.memory_gb`` is killed and
replaced, and its job is answered with a ``Failure``: a kind (``placement/failure.py``) and a message. Each kind of
job has an answer of its own (``measure/answers.py``); who answered is a ``Reply`` around it, and a worker
of a cluster that may not measure says ``LeftOut`` in place of one. Who asks reads answers with pydantic; measuring
processes write and read theirs by hand, since reading pydantic itself would take a tenth of a second of their
start.

Measuring processes load and check what they measure side by side, and time one at a time with nobody at work on the
other slots (``measure/exclusive.py``): caches and memory are shared, and how much a library minds that
differs from one to the next, so that placements would rank otherwise than they rank
alone. Two locks on files see to it: who prepares shares the room, who times has it alone, and while somebody waits
to time nobody begins. A device is one slot, whatever the cores, with a lock of its own; all cores compile for it,
which counts as preparing, because libraries try on the device what they compile. Who compiles for the processor
takes no lock, since a piece may take half a minute: it leaves a note, begins only while nobody times, and its
process is halted (``SIGSTOP``) while somebody does, of whichever run. Waiting does not count as hanging, nor does
starting. Whoever holds cores or a turn, or waits for them, leaves a note (``target/presence.py``), true as long as
its file is locked, and from these notes each run says for which other run it waits.

In a measuring process the pieces of placements stay loaded (``measure/loaded_pieces.py``), those used last:
placements of one search have most of them in common, and what is loaded is bound to each one's buffers. The best
single backend is loaded too, as the reference run (``measure/reference_run.py``): batches of both, three runs
or 10 ms, take turns, and a placement's latency is its ratio to the anchor, times the anchor's latency among the
baselines. What drifts or disturbs meets both sides. There are as many pairs of bursts as it takes to know that a
placement is behind the best, or what it takes to a hundredth: one of what is far behind, and never more than
``fitness.timing`` asks for. While somebody times nobody else gets on, so every pair counts twice.

On several threads two libraries' pools in one process spoil each other, so there the anchor has a process of its own
(``measure/reference_process.py``), which is asked for each batch by a pipe and sleeps meanwhile. SqueezeNet
in one piece, timed again and again on two threads beside other programs at work, median deviation as a standard
deviation: on an EPYC (Zen 5) latencies spread by 18 to 27 % by the clock alone and ratios by 11 to 15 % (two samples
of 15 and 8, in OpenVINO and ONNX Runtime); on a Zen 4 (three placements, eight times each) by 7 to 9 % in 2.9 s a
measurement, and by 3 to 8 % in 1.5 s. On a device or with several sessions there is no anchor: there the clock alone
tells.

A placement in a lower precision is judged on two samples, always the same ones, and on all of the search's samples
once it is timed and at most a tenth slower than the best so far that keeps the budget. By a metric, of which two
samples tell nothing, it is judged once it is timed: on all samples if it is as near the best, else on a quarter of
them. So what the search says of the error of a slow placement is an estimate; the model of errors learns from none
of a metric, which counts few decisions. Who judges what it timed is halted while somebody else times, as who
compiles is: nobody waits for it.

While others work on the same cores a time says little, and is taken again. ``target/interference.py`` tells: the
time that the cores were busy, as the system counts it, less the time this process used. Context switches would not
do: on several threads the pools of two libraries take cores from each other some 200 times a second, and nobody
else is there.

Processor clocks, and neighbours on the same host, make everything a few percent faster or slower for seconds to
minutes. The search's latencies are as measured nevertheless, on one scale with the baselines. A correction by a
fixed piece of work timed beside each was tried and left out: on a Xeon that work's time moved by 20 % where the
models' did not. What looks fastest runs again in turns before it is the answer, and a seed that seems faster than
the answer says why it is not. ``benchmarks/repeatability.py`` shows how well measurements repeat.

With ``search.objective: throughput`` whole models (baselines, placements, turns of the final) are timed with the
machine full (``runtime/crowd.py``): ``Setting.sessions`` sessions in one process, on a slot of all their cores,
each in a thread of its own. Each is loaded before its thread is put on its cores, because OpenVINO reads the cores
once in a process. A ``Tally`` takes down the end of every run. What it gives is wall time over runs for the span
between the moment when the last session is warm and the first one's stopping, in 16 parts of whole rounds, so that
medians and intervals mean what they always do. Every session's outputs are checked after its last run. On several
threads a session's pool threads are kept on its cores only where the library starts them at its first run.

Parts are timed alone there too, and ``CostModel.for_sessions`` divides them by the number of sessions: one takes so
much of the machine. That is wrong by as much as an engine minds its neighbours (0 to 6
% for two, 12 to 22 % for ncnn). Timing parts beside neighbours would need the neighbour to be the rest of a
placement that is not known yet. A factor for each engine is the first thing that the learned cost model fits
(``PRIOR``: 15 %), from whole models that were measured full, and no estimate is in the final race.
``RunContext.whole`` is the pool for whole models; it shares its stations with the one for parts, which is closed
between the two. The checkpoint's fingerprint has the objective.

On a device a part of the model is timed by the device's events, around a replay of its capture. Before each, as
many bytes are written as the rest of the model touches (256 MB at most, as Triton's ``do_bench`` clears, and at
least 64 MB: while the device writes them, the replay is launched), and the inputs are copied in again: weights are
cold then, and inputs warm. Copies are no part of it, because the cost model charges them. Whole placements and
baselines are timed by the clock, from host to host. Either is warmed up for 200 ms, the default of TensorRT's
``trtexec``. Neither size nor the warm-up was measured on a GPU. What was timed while the device ran slower than it
could (too hot, or out of power) counts as disturbed and is timed again. Memory that is out is a failure of its own
kind, with the library's words. After such a failure, and after any error that is raised, the process is replaced:
libraries keep a device's memory, and no process outlives an error of the device.

Whatever compiles or loads does it in a measuring or building process, the artifacts of the final race included
(``ArtifactJob``). In the run's own process only ONNX Runtime works, as the reference: it folds constants, finds
shapes and computes the outputs that all others are held to.

A backend that crashes, hangs, leaks, writes on its inputs or gives wrong numbers, at once or after a thousand runs,
is a failure in the result (``cost_model.refused`` by kind, ``search.unfit``, ``baselines``).
``tests/support/faults.py`` is a backend whose variants are these faults.
"""
