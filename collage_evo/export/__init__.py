"""The answer as plain files: takes a run directory, writes what its libraries load without this package."""

from collage_evo.export.plain import Exported, export_plain

__all__ = ["Exported", "export_plain"]
