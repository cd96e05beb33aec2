"""Check of torch.export archives: refuses one if PyTorch would unpickle anything in it.

PyTorch 2.13 writes tensors as plain bytes, but reads back whatever an archive declares as pickled: tensors of other
classes, objects, example inputs, and all weights in the formats of older versions. Unpickling runs code from the
archive.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from collage_evo.errors import InputError
from collage_evo.files import reading


def require_unpickled(path: Path) -> None:
    """Check an archive before it is loaded.

    Raises:
        InputError: the file holds pickled data, or is no archive.
    """
    with (
        reading(path, "make the artifact again", wrong="is no archive of torch.export"),
        zipfile.ZipFile(path) as archive,
    ):
        pickled = next((entry for entry in archive.infolist() if _is_pickled(archive, entry)), None)
    if pickled:
        raise InputError(f"{path.name} holds pickled data ({pickled.filename}): make the artifact again")


def _is_pickled(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    if entry.filename.endswith("_config.json"):
        payloads = json.loads(archive.read(entry)).get("config", {}).values()
        return any(payload.get("use_pickle", True) for payload in payloads)
    return entry.filename.endswith((".pt", ".pkl")) and entry.file_size > 0
