"""The application that commands register with, and the options that several of them share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Set = Annotated[
    list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="Override one key of the configuration.")
]
ShapesOption = Annotated[
    str | None, typer.Option("--shapes", metavar="SHAPES", help="'x: [1, 3, 48, 320]', or auto: the smallest.")
]
Data = Annotated[
    str | None, typer.Option("--data", metavar="DATA", help="Your own inputs, as .npz, folder or file.py:function.")
]
Budget = Annotated[
    str | None, typer.Option("--budget", metavar="B", help="Largest error of the answer: 0.02, 1%, 40dB, or exact.")
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="M",
        help="What is meant by wrong: agreement, cosine, psnr, text, top1, top5, or file.py:function.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="Run directory (default: runs/NAME).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that is in the directory.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Delete the run that is in the directory.")]
