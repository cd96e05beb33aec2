"""An accelerator is served by a package of its own; where that is missing, the line says what to install."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collage_evo.backends.select import require_accelerator
from collage_evo.errors import UnavailableError
from collage_evo.hardware import accelerator as module
from collage_evo.hardware.accelerator import accelerator_of
from collage_evo.hardware.target import Target

INSTALL = "the plug-in for cuda is not installed: make gpu, or pip install ./plugins/cuda"


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "entry_points", lambda **_: ())
    accelerator_of.cache_clear()
    yield
    accelerator_of.cache_clear()


@pytest.mark.usefixtures("nothing_installed")
def test_where_its_package_is_missing_the_line_says_what_to_install() -> None:
    for ask in (lambda: Target.here("cuda", 1), lambda: require_accelerator(Target("cuda"))):
        with pytest.raises(UnavailableError, match=INSTALL):
            ask()
    with pytest.raises(UnavailableError, match=r"the plug-in for tpu is not installed$"):
        accelerator_of("tpu")
