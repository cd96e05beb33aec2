"""Measurement of placements and parts in worker processes, one for each timing slot, on this machine or a cluster.

``WorkerPool`` maps jobs with joblib over threads, each of which waits for a worker process on this machine or for
Dask (docs/cluster.md). A worker slot is one timing slot, a group of cores that file locks reserve while the slot is
open, with one worker process (``fitness/worker.py``) pinned to these cores. Jobs and answers are JSON lines. If a
worker process crashes, hangs past ``fitness.timeout_s`` or grows past ``fitness.memory_gb``, the pool kills and
replaces it and answers its job with a ``Failure``: a kind (``genome/failure.py``) and a message. Each kind of job
has an answer type of its own (``fitness/jobs.py``); a ``Reply`` adds which worker answered, and a worker of a
cluster that may not measure sends ``LeftOut`` instead.

A server (``fitness/fork_server.py``) forks the worker processes, because importing their modules takes half a second
of processor time, and a run starts dozens.

Worker processes load and check side by side, but only one of them times at once, while the other slots are idle
(``fitness/exclusive.py``): cores share caches and memory, and libraries differ in how much that slows them, so that
placements timed in parallel would rank differently. Two file locks ensure it: processes that prepare hold a lock in
shared mode, a process that times holds it exclusively, and while one waits to time, no other begins. An accelerator
is one slot, whatever the number of cores, with a lock of its own; all cores compile for it, and that counts as
preparation, because libraries try on the accelerator what they compile. Compilation for the processor takes no lock,
since a piece may take half a minute: the process leaves a note, begins only while nothing is timed, and is halted
(``SIGSTOP``) while any run times. Time spent waiting or starting does not count as hanging. A process that holds
cores or the lock, or waits for them, leaves a note (``hardware/presence.py``), which is valid as long as its file is
locked; from these notes each run reports which other run it waits for.

In the worker process ``fitness/worker.py`` hands each job to the part that does it: regions to
``fitness/parts.py``, baselines and placements to ``fitness/whole_models.py``, artifacts of a race to
``fitness/open_artifact.py``. They share compiler, judge and locks (``fitness/worker_context.py``).
``docs/architecture.md`` follows a placement from the search to its timed run.

A worker process caches the most recently used pieces of placements (``fitness/whole_models.py``): the placements of
one search share most of them, and each loaded piece is rebound to the next placement's buffers. The process also
loads the best single backend as the reference run (``fitness/reference_run.py``): sample batches of both, three runs
or 10 ms each, alternate, and a placement's latency is its ratio to the reference run, times the reference run's
latency among the baselines. Drift and contention affect both alike. Timing takes as many pairs of batches as show
that a placement is slower than the best, or as give its latency to a hundredth: one pair for a much slower placement,
and never more than ``fitness.timing`` asks for. While one process times no other can, so every pair costs the machine
twice.

On several threads the pools of two libraries in one process slow each other down, so there the reference run has a
process of its own (``fitness/reference_run.py``), which runs each batch on a request over a pipe and sleeps
otherwise. On an accelerator or with several sessions there is no reference run: the latency is what the clock
measures.

A placement in a lower precision is judged on two samples, always the same ones, and on all of the search's samples
once it is timed and at most a tenth slower than the best one within the budget so far. Two samples show nothing about
a metric, so that by a metric a placement is judged after timing: on all samples if it is as close to the best, else
on a quarter of them. So the error that the search reports for a slow placement is an estimate; the error model learns
none of a metric, which counts few decisions. A process that judges what it timed is halted while another one times,
as one that compiles is: no process waits for it.

While other programs work on the same cores a measurement is unreliable, and is repeated. ``hardware/interference.py``
detects them: the time that the cores were busy, as the system counts it, less the time that this process used.
Context switches are no substitute: on several threads the pools of two libraries take cores from each other some 200
times a second, although no other program runs.

Processor clocks, and neighbours on the same host, make everything a few percent faster or slower for seconds to
minutes. The search uses latencies as measured nevertheless, on one scale with the baselines. The fastest placements
run again in alternating rounds before one becomes the answer, and a seed that looks faster than the answer carries
the reason why it is not. ``2d0817f2:benchmarks/repeatability.py`` shows how well measurements repeat.

With ``search.objective: throughput`` whole models (baselines, placements, rounds of the final) are timed with the
machine full (``runtime/crowd.py``): ``Setting.sessions`` sessions in one process, on a slot of all their cores, each
in a thread of its own. Each is loaded before its thread is pinned to its cores, because OpenVINO reads the cores once
in a process. A ``Tally`` records the end of every run. Its result is wall time over runs for the span between the
moment when the last session is warm and the moment when the first one stops, in 16 parts of whole rounds, so that
medians and intervals have their usual meaning. Every session's outputs are checked after its last run. On several
threads a session's pool threads stay on its cores only where the library starts them at its first run.

Parts are timed standalone there too, and ``CostModel.for_sessions`` divides their cost by the number of sessions,
because one session takes that share of the machine. The error of this is what its neighbours cost an engine (0 to 6 %
for two, 12 to 22 % for ncnn). Timing parts next to neighbours would require the neighbour to be the rest of a
placement that is not known yet. A factor for each engine is the first parameter that the learned cost model fits
(``PRIOR``: 15 %), from whole models measured on the full machine, and the final race uses no estimates.
``PooledMachine`` has a pool for whole models and one for parts, which share their workers; those that hold cores for
the other are ended between the two. The checkpoint's fingerprint includes the objective.

On an accelerator a part of the model is timed by its events, around a replay of its capture. Before each replay, as
many bytes are written as the rest of the model touches (256 MB at most, as Triton's ``do_bench`` clears, and at least
64 MB: while the accelerator writes them, the replay is launched), and the inputs are copied in again: weights are
cold then, and inputs warm. Copies are excluded, because the cost model charges them. Whole placements and baselines
are timed by the clock, from host to host. Both are warmed up for 200 ms, the default of TensorRT's ``trtexec``.
Neither size nor the warm-up was measured on a GPU. A measurement taken while the accelerator ran slower than it could
(too hot, or short of power) counts as contended and is repeated. Exhausted memory is a failure of its own kind, with
the library's message. After such a failure, and after any error that is raised, the process is replaced: libraries
keep an accelerator's memory, and no process survives an error of it.

Compiling and loading happen in a measuring or building process only, also for the artifacts of the final race
(``ArtifactJob``). In the run's own process only ONNX Runtime works, as the reference: it folds constants, infers
shapes and computes the outputs that all others are compared with.

A backend that crashes, hangs, leaks, writes on its inputs or gives wrong numbers, at once or after a thousand runs,
is a failure in the result (``cost_model.refused`` by kind, ``search.unfit``, ``baselines``).
``tests/support/faults.py`` is a backend whose variants are these faults.
"""
