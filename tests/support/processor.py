"""What tests ask of the processor that they run on."""

from __future__ import annotations

import pytest

from collage_evo.backends.checks import lacks_instructions
from collage_evo.backends.variants import Arithmetic


def needs(*arithmetics: Arithmetic) -> pytest.MarkDecorator:
    """Skips a test where the processor has no instructions for one of ``arithmetics``, with the reason."""
    reason = lacks_instructions(*arithmetics)
    return pytest.mark.skipif(bool(reason), reason=reason)
