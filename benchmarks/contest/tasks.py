"""All tasks by name: how each is made, and how many samples it has. Made once, kept in a folder.

python -m contest.tasks FOLDER NAME
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from contest.task import Task

Maker = Callable[[Task, int, int], None]


@dataclass(frozen=True)
class Recipe:
    """How a task is made: by whom, numbers of samples, and what a :class:`Task` says of it."""

    maker: Maker
    samples: int
    held_out: int
    metric: str = ""
    transformer: bool = False


def _by(module: str, maker: str, *source: str) -> Maker:
    """A function of a module that needs more than this one, and is imported when a task is made."""

    def make(task: Task, samples: int, held_out: int) -> None:
        getattr(importlib.import_module(f"contest.{module}"), maker)(*source, task, samples, held_out)

    return make


def _random(source: str, transformer: bool = False) -> Recipe:
    return Recipe(_by("nets", "make_random", source), 64, 64, transformer=transformer)


TASKS: Mapping[str, Recipe] = {
    # It ends in layers of attention.
    "recogniser": Recipe(_by("ocr", "make_recogniser"), 700, 1000, "exact_match", transformer=True),
    "detector": Recipe(_by("ocr", "make_detector"), 100, 150, "box_iou"),
    "orientation": Recipe(_by("ocr", "make_orientation"), 500, 1000, "top1"),
    "digits": Recipe(_by("trained", "make_digits"), 400, 597, "top1"),
    "text": Recipe(_by("trained", "make_text"), 300, 400, "next_character", transformer=True),
    "files": Recipe(_by("texts", "make_files"), 500, 1000, "top1"),
    "speech": Recipe(_by("sounds", "make_speech"), 300, 500, "windows"),
    "music": Recipe(_by("sounds", "make_music"), 100, 200, "notes_f1"),
    "pitch": Recipe(_by("sounds", "make_pitch"), 300, 400, "quarter_tone"),
    "pages": Recipe(_by("pages", "make_pages"), 300, 400, "top1"),
    "signs": Recipe(_by("characters", "make_signs"), 300, 500, "sign_match"),
    "characters": Recipe(_by("characters", "make_characters"), 100, 150, "character_iou"),
    "resnet50": _random("builtin:resnet50"),
    "mobilenet_v2": _random("builtin:mobilenet_v2"),
    "efficientnet": _random("efficientnet"),
    "bert": _random("builtin:bert?layers=4&length=128", transformer=True),
    "convnext": Recipe(_by("photographs", "make_convnext"), 64, 64),
    "swin": Recipe(_by("photographs", "make_swin"), 64, 64, transformer=True),
    "densenet": Recipe(_by("photographs", "make_by_name", "network:densenet121"), 64, 64),
    "inception": Recipe(_by("photographs", "make_by_name", "network:inception_v3"), 64, 64),
    "video": _random("builtin:resnet3d_18?frames=8&size=64"),
}


def make_task(folder: Path, name: str) -> None:
    """Write the task ``name`` to ``folder``."""
    recipe = TASKS[name]
    recipe.maker(Task(name, folder, recipe.metric, recipe.transformer), recipe.samples, recipe.held_out)


if __name__ == "__main__":
    make_task(Path(sys.argv[1]), sys.argv[2])
