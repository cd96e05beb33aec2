"""What the GPU costs beside its kernels, and whether it gives back what it was asked for.

    python benchmarks/device.py device.json [--artifact runs/resnet_v100/best.collage] [--rounds 15]

Copies each way between page-locked memory and the device, by size; the start of small pieces of work, one by one and
as one captured graph, in turn or at the same time: all by wall time from the first call to the end of the wait, in
rounds of random order, and by the device's own events. A process that holds memory of the device is killed, and what
is free is asked before and after. With an artifact that was compiled for cuda: its session against itself, each in a
process of its own, in turns (the ratio ought to be 1); what a caller of ``run`` waits for against the loop over
regions alone; and what that loop takes by the clock beside its work on the device by events: copies in and out,
launches, and the wait; and if some of its pieces can run at the same time, what a run takes so and in turn.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
from turns import Rounds, median_ms, ratio, take_turns

from collage_evo.answer.sequential import mean_interval
from collage_evo.devices.device import Device, OutOfDeviceMemory
from collage_evo.devices.open import open_device
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.bench import random_feeds
from collage_evo.target.driver import cuda_driver
from collage_evo.target.gpu import describe_gpu
from collage_evo.target.processor import this_machine
from collage_evo.target.slots import usable_cores

Call = Callable[[], None]
WARM_UP_S = 0.2
FREED_WITHIN_S = 10.0
HOLDER = "import sys; from collage_evo.devices.open import open_device\n" \
    "held = open_device('cuda').arena(int(sys.argv[1])); print('held', flush=True); sys.stdin.read()"  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--artifact", type=Path, help="compiled for cuda; without it no session is timed")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bytes", type=int, nargs="+", default=[4 * 8**k for k in range(8)], help="of copies")
    parser.add_argument("--work", type=int, nargs="+", default=[1, 10, 100], help="pieces of work of a graph")
    parser.add_argument("--seconds", type=float, default=0.02, help="of each measurement in a round")
    parser.add_argument("--turn", type=float, default=0.5, help="seconds of a session's turn")
    parser.add_argument("--held", type=int, default=2**30, help="bytes that the killed process holds")
    options = parser.parse_args()
    device = open_device("cuda")
    print(f"{this_machine().cpu}; {describe_gpu()}; {device.health()}")
    wall, events = time_calls(device, calls_of(device, options.bytes, options.work), options.rounds, options.seconds)
    for name, times in wall.items():
        low, high = (1e3 * bound for bound in mean_interval(times))
        print(f"{name}: {1e3 * np.mean(times):.2f} [{low:.2f}, {high:.2f}] microseconds, "
              f"{1e3 * np.mean(events[name]):.2f} by events")  # fmt: skip
    told = {"out of memory": out_of_memory(device), "killed": killed(options.held)}
    for what, text in told.items():
        print(f"{what}: {text}")
    print(f"afterwards {device.health()}")
    raw = {"wall_ms": wall, "events_ms": events, **told}
    if options.artifact:
        beside = beside_events(options.artifact, options.rounds, options.turn)
        found = sessions(options.artifact, options.rounds, options.turn)
        turns = {side: [asdict(turn) for turn in rounds] for side, rounds in found.items()}
        raw |= {"session_ms": beside, "sessions": turns}
    options.output.write_text(json.dumps(raw))


def calls_of(device: Device, sizes: Sequence[int], counts: Sequence[int]) -> dict[str, Call]:
    """What is timed, by name; none of them waits. Random bytes are copied."""
    calls: dict[str, Call] = {"nothing": lambda: None}
    rng = np.random.default_rng(0)
    for size in sizes:
        array, host = device.arena(size)(0, (size,), "uint8"), device.pinned(size)
        host[:] = rng.integers(0, 256, size, np.uint8)
        calls[f"{size} bytes to the device"] = partial(device.copy_in, array, host)
        calls[f"{size} bytes to the host"] = partial(device.copy_out, host, array)
    for count in counts:
        memory = device.arena(512 * count)
        arrays = [memory(256 * place, (64,), "float32") for place in range(2 * count)]
        pieces = [partial(device.copy, there, here) for here, there in zip(arrays[::2], arrays[1::2], strict=True)]
        together = partial(device.side_by_side, pieces, [()] * count)
        calls[f"{count} pieces one by one"] = together
        calls[f"{count} pieces as a graph, in turn"] = device.capture(together)
        calls[f"{count} pieces as a graph, at the same time"] = device.capture(together, overlapping=True)
    return calls


Times = Mapping[str, list[float]]


def time_calls(device: Device, calls: Mapping[str, Call], rounds: int, seconds: float) -> tuple[Times, Times]:
    """Milliseconds of each call, a median for each round: by wall time, the wait included, and by events."""
    order, shuffle = list(calls), random.Random(0).shuffle
    wall: dict[str, list[float]] = {name: [] for name in calls}
    events: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + WARM_UP_S
    while time.perf_counter() < end:
        for call in calls.values():
            call()
        device.synchronise()
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            wall[name].append(float(np.median(repeat(partial(waited, device, calls[name]), seconds))))
            events[name].append(float(np.median(repeat(partial(device.time_ms, calls[name]), seconds))))
    return wall, events


def waited(device: Device, call: Call) -> float:
    """Milliseconds until what ``call`` enqueues has run."""
    began = time.perf_counter()
    call()
    device.synchronise()
    return (time.perf_counter() - began) * 1e3


def repeat(once: Callable[[], float], seconds: float) -> list[float]:
    """What ``once`` gives, again and again for so long."""
    end = time.perf_counter() + seconds
    times = [once()]
    while time.perf_counter() < end:
        times.append(once())
    return times


def out_of_memory(device: Device) -> str:
    """What is said when more is asked for than there can be; the device works afterwards."""
    try:
        device.arena(2**50)
    except OutOfDeviceMemory as error:
        device.synchronise()
        return str(error)
    raise SystemExit("2^50 bytes were given")


def killed(nbytes: int) -> str:
    """What is free before a process takes memory, while it holds it, and once it was killed."""
    before = free_bytes()
    arguments = [sys.executable, "-c", HOLDER, str(nbytes)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise SystemExit("the process that ought to hold memory died")
        held = free_bytes()
        holder.kill()
    end = time.monotonic() + FREED_WITHIN_S
    while free_bytes() < before and time.monotonic() < end:
        time.sleep(0.05)
    mb = (f"{nbytes / 1e6:.0f} MB" for nbytes in (before, held, free_bytes()))
    return "free before {}, held {}, after {}".format(*mb)


def free_bytes() -> int:
    """Bytes of the device that nobody has."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda_driver().cuMemGetInfo_v2(free, total)
    return free.value


def beside_events(artifact: Path, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of a run on random inputs by the clock and by events, a median for each round."""
    with load_artifact(artifact) as session:
        session.feed(random_feeds(session.program))
        for _ in range(3):
            session.execute()
        for note in session.notes:
            print(f"session: {note}")
        if session.raced_ms is not None:
            print("a run with pieces at the same time {:.4f} ms, in turn {:.4f} ms".format(*session.raced_ms))

        def clock() -> float:
            began = time.perf_counter()
            session.execute()
            return (time.perf_counter() - began) * 1e3

        sides = {"clock": clock, "events": session.time_device_ms}
        taken: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, once in sides.items():
                taken[side].append(float(np.median(repeat(once, seconds / 2))))
    extra = np.subtract(taken["clock"], taken["events"])
    low, high = mean_interval(extra.tolist())
    by_clock, by_events = (np.median(taken[side]) for side in sides)
    print(f"a run by the clock: {by_clock:.4f} ms, its work on the device by events: {by_events:.4f} ms")
    print(f"beside that work: {np.mean(extra):.4f} [{low:.4f}, {high:.4f}] ms")
    return taken


def sessions(artifact: Path, rounds: int, seconds: float) -> Rounds:
    """Two equal sessions, and the loop over regions alone, in turns."""
    sides = {
        "a": ["session", str(artifact)],
        "b": ["session", str(artifact)],
        "regions": ["execute", str(artifact)],
    }
    found = take_turns(sides, usable_cores()[:1], rounds, seconds)
    print(f"the session against itself: {ratio(found, 'a', 'b')}; {median_ms(found, 'a'):.4f} ms")
    print(f"run against execute: {ratio(found, 'a', 'regions')}")
    return found


if __name__ == "__main__":
    main()
