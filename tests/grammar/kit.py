"""What the tests of grammars with everything else share."""

from typing import Any

from tests.api.answers import JoinedChoice
from tests.api.kit import COMPLETIONS, ApiBench

DOCUMENT = {
    "type": "object",
    "properties": {
        "name": {"enum": ["Ann", "Bob"]},
        "job": {"enum": ["engineer", "engine driver"]},
        "old": {"type": "boolean"},
    },
    "required": ["name", "job", "old"],
}


async def one(bench: ApiBench, path: str = COMPLETIONS, **fields: Any) -> JoinedChoice:
    """The one choice of an answer."""
    answer = await bench.post(path, **{"max_tokens": 60, **fields})
    assert answer.status == 200, answer.body
    (choice,) = answer.joined()
    return choice
