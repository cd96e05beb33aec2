"""The target of code and latency: one description, and one digest for every key."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property

from collage_evo.codec import to_plain
from collage_evo.errors import UnavailableError
from collage_evo.hardware.accelerator import Accelerator, accelerator_of
from collage_evo.hardware.processor import Processor, this_machine

CPU = "cpu"
"""The device that needs no copies: its memory is the host's."""


@dataclass(frozen=True)
class Target:
    """A device of a machine, and how many threads of it may be used. By default the machine is this one.

    Attributes:
        device: ``cpu``, or the name of an accelerator.
        threads: of a piece on the CPU.
        cores: of these threads. They affect neither code nor cost, so the digest does not include them.
        machine: the processor, and the C library that code is linked against.
        accelerator: the GPU's model and driver where the device is one, else empty.
        records: directory with a folder of each backend that was tuned for this run; only the build of tuned variants
            needs it, and their names contain its digest.
    """

    device: str = CPU
    threads: int = 1
    cores: tuple[int, ...] = ()
    machine: Processor = field(default_factory=this_machine)
    accelerator: str = ""
    records: str = field(default="", compare=False)

    @classmethod
    def here(cls, device: str, threads: int, records: str = "") -> Target:
        """The target for ``device`` of this machine, on any cores."""
        described = "" if device == CPU else accelerator_of(device).describe()
        return cls(device, threads, accelerator=described, records=records)

    @property
    def accelerated(self) -> bool:
        """Whether pieces may run on an accelerator beside the host."""
        return self.device != CPU

    @property
    def served_by(self) -> Accelerator:
        """The accelerator beside the host. Raises as :func:`accelerator_of`, also where there is none."""
        return accelerator_of(self.device)

    @property
    def locks(self) -> tuple[str, ...]:
        """What one process at a time may use beside its cores, as names of lock files."""
        return (f"device-{self.device}",) if self.accelerated else ()

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits, equal for targets on which the same code runs and costs the same."""
        parts = json.dumps([self.device, self.accelerator, self.threads, to_plain(self.machine)], sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def key(self, backend: str, version: str, *more: str) -> str:
        """Key of stored data of a backend in this version on this target; ``more`` distinguishes the data."""
        return "|".join((backend, version, *more, self.digest))

    @property
    def description(self) -> str:
        """The target as text, with its digest, which shows all other differences between two targets."""
        where = self.accelerator or self.machine.cpu
        return f"{self.device}, {self.threads} thread(s), {where} ({self.digest})"

    @property
    def foreign(self) -> str:
        """Why this is not a target of this machine; empty where it is."""
        try:
            here = Target.here(self.device, self.threads)
        except UnavailableError as missing:
            return f"{missing}; the run is for {self.description}"
        if here.digest == self.digest:
            return ""
        return f"this machine is {here.description}, the run is for {self.description}"
