"""A manifest that anybody may have changed: the artifact answers right, or is refused in one line."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import collage_evo
from collage_evo.errors import InputError, UnavailableError
from collage_evo.runtime.artifact import MANIFEST, Profile, write_artifact
from tests.runtime.helpers import TARGET, alternating, whole
from tests.support.hostile import FORKED, HOSTILE
from tests.support.models import chain, parse_graph

X = np.random.default_rng(0).standard_normal((1, 4, 8, 8), np.float32)
ODD: list[Any] = [
    *(None, True, False, -1, 0, 1, 7, 2**31, 2**50, 10**6, 10**400, 1.5, float("nan"), float("inf")),
    *("", "x", "y", "a\nb", ".", "..", "../x", "/etc/passwd", "a\0b", "\ud800", "opaque", "int32", "float64"),
    *("onnxruntime", "openvino", "ncnn", "torch", "cuda", "profiles/0", "profiles/0/000_onnxruntime", "x" * 5000),
    *([], {}, [None], [[]], {"x": {}}, ["x"], ["y"], ["x", "x"], [2**50], [-1, 4, 8, 8], [1] * 99),
]
"""What may stand in place of anything."""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two profiles of one model, one of them over two backends, and a fallback."""
    root = tmp_path_factory.mktemp("manifest")
    model = chain(2)
    programs = [alternating(model, root / "pieces", ("onnxruntime", "openvino")), whole(model, root / "pieces")]
    fallback = whole(model, root / "pieces", "openvino")
    profiles = [Profile(program, {"note": "a"}) for program in programs]
    write_artifact(root / "a.collage", profiles, TARGET, fallback=fallback)
    return root / "a.collage"


@pytest.fixture(scope="module")
def expected(artifact: Path) -> np.ndarray:
    y, refused = answer(artifact)
    assert y is not None, refused
    return y


def answer(artifact: Path) -> tuple[np.ndarray | None, str]:
    """What it gives for ``X``, or why it is refused."""
    try:
        with collage_evo.load(artifact) as session:
            return session.run(["y"], {"x": X})[0], ""
    except (InputError, UnavailableError) as error:
        return None, str(error)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where everything in a manifest stands."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def at(manifest: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        manifest = manifest[key]
    return manifest


def changed(draw: st.DrawFn, manifest: Any) -> Any:
    """The manifest with one thing replaced, removed, doubled, put elsewhere, or its parts in another order."""
    path = draw(st.sampled_from([path for path in places(manifest) if path]))
    holder, key = at(manifest, path[:-1]), path[-1]
    match draw(st.sampled_from(["replace", "replace", "remove", "double", "elsewhere", "reverse", "number"])):
        case "replace":
            holder[key] = deepcopy(draw(st.sampled_from(ODD)))
        case "number":
            holder[key] = draw(st.integers(-2, 2**64))
        case "remove":
            del holder[key]
        case "double" if isinstance(holder, list):
            holder.append(deepcopy(holder[key]))
        case "double":
            holder[draw(st.sampled_from(["x", "y", "z", "../z", ""]))] = deepcopy(holder[key])
        case "elsewhere":
            holder[key] = deepcopy(at(manifest, draw(st.sampled_from(list(places(manifest))))))
        case "reverse" if isinstance(holder[key], list):
            holder[key].reverse()
    return manifest


@given(data=st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_changed_it_answers_right_or_is_refused_in_one_line(
    artifact: Path, expected: np.ndarray, tmp_path: Path, data: st.DataObject
) -> None:
    manifest = json.loads((artifact / MANIFEST).read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        manifest = changed(data.draw, manifest)
    forged = tmp_path / "forged.collage"
    if not forged.exists():
        shutil.copytree(artifact, forged)
    (forged / MANIFEST).write_text(json.dumps(manifest))
    y, refused = answer(forged)
    assert "\n" not in refused
    assert len(refused) < 2000
    if y is not None:
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact with a piece for each operator."""
    root = tmp_path_factory.mktemp("forked")
    program = alternating(parse_graph(FORKED), root / "pieces", ("onnxruntime", "openvino"))
    write_artifact(root / "a.collage", [Profile(program)], TARGET)
    return root / "a.collage"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_is_refused_in_one_line(forked: Path, tmp_path: Path, name: str) -> None:
    change, words = HOSTILE[name]
    hostile = Path(shutil.copytree(forked, tmp_path / "hostile.collage"))
    manifest = json.loads((hostile / MANIFEST).read_text())
    (program,) = manifest["profiles"]
    change(manifest, program, program["regions"])
    (hostile / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=words) as refused:
        collage_evo.load(hostile)
    assert "\n" not in str(refused.value)


@given(text=st.binary(max_size=200))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_manifest_of_any_bytes_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(text)
    with pytest.raises(InputError):
        collage_evo.load(tmp_path)


@pytest.fixture
def forged(artifact: Path, tmp_path: Path) -> Path:
    """A copy of the artifact, to be changed."""
    return shutil.copytree(artifact, tmp_path / "forged.collage")


@pytest.mark.parametrize("parts", ["regions", "tensors"])
def test_more_than_any_search_makes_is_refused_before_a_file_is_read(
    forged: Path, monkeypatch: pytest.MonkeyPatch, parts: str
) -> None:
    manifest = json.loads((forged / MANIFEST).read_text())
    for profile in manifest["profiles"]:  # each alone might do
        one = next(iter(profile["tensors"].values()))
        more = {"regions": profile["regions"] * 5000, "tensors": {f"t{index}": one for index in range(5000)}}
        profile[parts] = more[parts]
    (forged / MANIFEST).write_text(json.dumps(manifest))
    monkeypatch.delattr(hashlib, "file_digest")
    with pytest.raises(InputError, match=rf"damaged .*\d+ {parts}, of which no more than 8192 are read"):
        collage_evo.load(forged)


def test_what_a_piece_says_of_itself_is_not_read_where_it_is_too_long(forged: Path) -> None:
    manifest = json.loads((forged / MANIFEST).read_text())
    name = next(name for name in manifest["files"] if name.endswith("border.json"))
    text = (forged / name).read_bytes() + b" " * 2**25
    (forged / name).unlink()
    (forged / name).write_bytes(text)
    manifest["files"][name], manifest["sizes"][name] = hashlib.sha256(text).hexdigest(), len(text)
    (forged / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"is damaged .*too large"):
        collage_evo.load(forged)


def test_a_manifest_that_is_too_long_is_not_read(forged: Path) -> None:
    with (forged / MANIFEST).open("a") as file:
        file.write(" " * 2**25)
    with pytest.raises(InputError, match="is damaged"):
        collage_evo.load(forged)
