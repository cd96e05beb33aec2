"""Answers from JSON: takes what ``answer_to_json`` gave, gives the answer.

Apart from the answers themselves, because only who asks needs it: a measuring process would start a tenth of a second
later for reading pydantic.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from collage_evo.fitness.measure.answers import ANSWERS, Answer


@functools.cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(ANSWERS[kind])


def read_answer(data: Mapping[str, Any]) -> Answer:
    """The answer that ``data``, read from JSON, tells.

    Raises:
        KeyError, ValueError: it is none.
    """
    fields = dict(data)
    answer: Answer = _adapter(fields.pop("kind")).validate_python(fields)
    return answer
