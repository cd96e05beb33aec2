"""Export of a run's answer as plain files that its libraries load without this package."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from collage_evo.export.context_model import export_context_model
from collage_evo.export.plain import Exported, export_plain

Form = Literal["plain", "onnxruntime"]
FORMS: Mapping[Form, Callable[[Path, Path], Exported]] = {"plain": export_plain, "onnxruntime": export_context_model}
"""What writes the answer of a run into a folder, by form."""

__all__ = ["FORMS", "Exported", "Form", "export_context_model", "export_plain"]
