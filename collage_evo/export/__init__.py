"""Export of a run's answer as plain files that its libraries load without this package."""

from collage_evo.export.context_model import export_context_model
from collage_evo.export.plain import Exported, export_plain

__all__ = ["Exported", "export_context_model", "export_plain"]
