"""The application that commands register with, and the options that several of them share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperArgument, TyperCommand

from collage_evo import __version__
from collage_evo.effort import Effort
from collage_evo.errors import ConfigError
from collage_evo.multimap import multimap

MODEL, ACCURACY, TIME, PROCESSOR, OUTPUT = "Model and data", "Accuracy", "Time", "Processor", "Output"
COMPARISON, EXPERT = "Comparison", "Expert"
"""Groups of options in the help of a command that has many."""
MOST_TOGETHER = 10
"""A command with more parameters has its options in groups."""

app = typer.Typer(
    pretty_exceptions_enable=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
)


class Command(TyperCommand):
    """A command whose help has many options in groups, and no type of Python beside the word of an argument.

    Typer itself has groups only with Rich's boxes, and no help without these types.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options to the ``formatter``; an option without a group is about the output."""
        parameters = self.get_params(ctx)
        in_groups = len(parameters) > MOST_TOGETHER
        titles = (
            "Arguments" if isinstance(one, TyperArgument)
            else (getattr(one, "rich_help_panel", None) or OUTPUT) if in_groups
            else "Options"
            for one in parameters
        )  # fmt: skip
        records = (one.get_help_record(ctx) or ("", "") for one in parameters)
        for title, rows in multimap(zip(titles, records, strict=True)).items():
            with formatter.section(title):
                formatter.write_dl([(re.sub(r"^(\w\S*) <.*>$", r"\1", words), text) for words, text in rows])


command = partial(app.command, cls=Command)
"""Registers a function as a command, as ``app.command`` does."""


def _print_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Find the fastest way to run an ONNX model on this machine within an error budget."""


Set = Annotated[
    list[str] | None,
    typer.Option(
        "-s", "--set", metavar="KEY=VALUE", help="Override one key of the configuration.", rich_help_panel=EXPERT
    ),
]
ShapesOption = Annotated[
    str | None,
    typer.Option(
        "--shapes",
        metavar="SHAPES",
        help="Shapes of dynamic inputs (default: the samples'): 'x: [1, 3, 48, 320]', or the sizes alone if one "
        "input is dynamic; sizes of symbolic dimensions: 'batch: 1, sequence: 128'; ranges, for one answer: "
        "'sequence: 1..512'; auto: the smallest.",
        rich_help_panel=MODEL,
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DATA",
        help="Input samples: an .npz, a folder or file.py:function (default: random inputs).",
        rich_help_panel=MODEL,
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="ERROR",
        help="Largest error of the answer: 0.02, the default, 1%, 40dB, or exact.",
        rich_help_panel=ACCURACY,
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="METRIC",
        help="Metric that the budget limits (default: the relative error): agreement, cosine, recall@10, psnr, text, "
        "exact_match, top1, top5, or file.py:function.",
        rich_help_panel=ACCURACY,
    ),
]
BatchInvariant = Annotated[
    bool | None,
    typer.Option(
        "--batch-invariant",
        help="Only answers whose outputs for a row stay the same, up to rounding, in a batch and beside padding.",
        rich_help_panel=ACCURACY,
    ),
]
EffortOption = Annotated[
    Effort | None,
    typer.Option(
        "--effort",
        help="Duration of the run, for a network of 30 ms. quick: half a minute, skips libraries that compile for "
        "long, rewrites and most of the search. normal, the default: 100 seconds. thorough: a quarter of an hour, "
        "measures more placements and more costs.",
        rich_help_panel=TIME,
    ),
]
Time = Annotated[
    float | None,
    typer.Option(
        "--time",
        min=5,
        metavar="SECONDS",
        help="Stop after so many seconds, with the best answer so far (default: no limit).",
        rich_help_panel=TIME,
    ),
]
Processor = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="PROCESSOR",
        help="Restrict the run to the instructions of a lesser processor: avx2, avx512 or avx512_bf16 (default: this "
        "one's).",
        rich_help_panel=PROCESSOR,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        metavar="COUNT",
        help="Most intra-op threads per session (default: 1).",
        rich_help_panel=PROCESSOR,
    ),
]
PrecisionOption = Annotated[
    Literal["exact", "mixed"] | None,
    typer.Option(
        "--precision",
        help="exact: float32 only, as --budget exact. mixed, the default: also bfloat16 and int8, within the budget.",
        rich_help_panel=ACCURACY,
    ),
]
Like = Annotated[
    Path | None,
    typer.Option(
        "--like",
        metavar="RUN_DIR",
        help="Warm start from the answer of a run of the same network.",
        rich_help_panel=EXPERT,
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Run directory (default: runs/NAME).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print no progress, only the result and errors.")]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Use all code, paths and addresses that the directory names.", rich_help_panel=EXPERT
    ),
]
ArtifactPath = Annotated[
    Path, typer.Argument(metavar="ARTIFACT", help="A .collage directory, a run directory or a package.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=EXPERT)]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the directory.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="First remove the files of the run in the directory.")]

STANDS_FOR: Mapping[str, Sequence[str]] = {
    "--effort": ["effort"],
    "--time": ["time"],
    "--threads": ["target.threads"],
    "--for": ["target.processor"],
    "--shapes": ["model.shapes", "model.sizes"],
    "--data": ["data.source"],
    "--budget": ["accuracy.budget"],
    "--precision exact": ["accuracy.budget"],
    "--metric": ["accuracy.metric"],
    "--batch-invariant": ["accuracy.batch_invariant"],
    "--like": ["search.like"],
    "--out": ["output.dir"],
}
"""Options that are aliases of configuration keys."""


def in_options(text: str, arguments: Sequence[str]) -> str:
    """The ``text`` of an error that begins with a key of a configuration, with the option that set it instead, if
    that is among the ``arguments``."""
    typed = {argument.partition("=")[0] for argument in arguments}
    for option, keys in STANDS_FOR.items():
        if typed.issuperset(option.split()):
            text = re.sub(rf"^(\S+: )?({'|'.join(map(re.escape, keys))})(?=[: ])", option, text)
    return text


def require_given_once(options: Mapping[str, object], overrides: Sequence[str] | None) -> None:
    """Require that none of ``options`` (None: it is not there) comes together with ``-s`` for the key that it sets.

    Raises:
        ConfigError: one is, and one of the two values would be lost.
    """
    keys = [override.partition("=")[0] for override in overrides or ()]
    for option in (option for option, value in options.items() if value is not None):
        for key in keys:
            if any(key == stem or key.startswith(f"{stem}.") for stem in STANDS_FOR[option]):
                raise ConfigError(f"{option} and -s {key} set the same key: give only one of them")
