"""Hold of this process to the processor that a configuration names."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from collage_evo.hardware.levels import SWITCH
from collage_evo.hardware.processor import level, this_machine

if TYPE_CHECKING:
    from collage_evo.config import Config


def hold_process(config: Config) -> None:
    """Start this process anew, held to ``target.processor``, unless it is held so already or that is not set.

    Raises:
        InputError: this processor lacks instructions of that one.
    """
    wanted = config.target.processor
    if wanted is None or wanted == level():
        return
    this_machine().held_to(wanted)
    os.environ[SWITCH] = wanted  # measuring processes inherit it
    sys.stdout.flush()
    # Libraries read the processor's instructions while they are imported, so a process that runs cannot change them.
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
