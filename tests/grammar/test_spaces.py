"""Spaces between the parts of a document: as many as the server's setting says."""

import json
import re

import pytest

from tests.grammar.walks import allowed, compiled, walk
from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.state import GrammarState
from trioserve.testing.fake_text import EOS_ID

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
        "b": {"type": "string", "pattern": "^x{2}$"},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}
CONSTRAINTS = [
    Constraint(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA)),
    Constraint(GrammarKind.JSON_OBJECT),
]


def blank_if_allowed(token_ids: list[int], num_before: int) -> int:
    """The model that would write blanks for ever, but for those inside a string."""
    for wanted in b' }]",:12':
        if wanted in token_ids:
            return wanted
    return token_ids[0]


@pytest.mark.case(80)
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda each: each.kind)
@pytest.mark.parametrize("max_spaces", [0, 1, 3])
def test_no_more_spaces_than_the_setting_says(constraint: Constraint, max_spaces: int) -> None:
    walked = walk(compiled(constraint, max_spaces), blank_if_allowed, 300)
    assert walked.is_finished
    json.loads(walked.text)
    outside = re.sub(rb'"[^"]*"', b'""', walked.text)
    assert max(map(len, re.findall(rb" *", outside))) == max_spaces
    assert not re.search(rb"[\t\n\r]", outside)


def test_without_spaces_a_document_is_written_as_short_as_it_can_be() -> None:
    state = GrammarState(compiled(CONSTRAINTS[0], 0), frozenset({EOS_ID}))
    for byte in b'{"a":[1,2],"b":"xx"}':
        assert ord(" ") not in allowed(state)
        assert byte in allowed(state)
        state.accept(byte)
    assert state.is_finished
