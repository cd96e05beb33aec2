"""Answers from JSON: takes what ``answer_to_json`` gave, gives the answer.

Apart from the answers themselves, because only who asks needs it: a measuring process would start a tenth of a second
later for reading pydantic.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from pydantic import TypeAdapter

from collage_evo.fitness.measure.answers import ANSWERS, Answer


@functools.cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(ANSWERS[kind])


def read_answer(text: str) -> Answer:
    """The answer that was written as ``text``.

    Raises:
        KeyError, ValueError: it is none.
    """
    data = json.loads(text)
    answer: Answer = _adapter(data.pop("kind")).validate_python(data)
    return answer
