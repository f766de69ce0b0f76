"""Ranges of numbers: every number that comes out is in its range, at both of its ends."""

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.grammar.walks import Choose, at_random, for_schema, walk
from trioserve.grammar.errors import GrammarError
from trioserve.testing.fake_text import EOS_ID

DIGITS = set(b"0123456789")


def extreme(*, is_high: bool, is_negative: bool = False) -> Choose:
    """The largest digit that may come, or the smallest; no end as long as there is a digit."""

    def choose(token_ids: list[int], num_before: int) -> int:
        if is_negative and num_before == 0 and ord("-") in token_ids:
            return ord("-")
        digits = DIGITS & set(token_ids)
        if digits:
            return max(digits) if is_high else min(digits)
        return next(token for token in (*b".-", EOS_ID) if token in token_ids)

    return choose


EXTREMES = [
    extreme(is_high=is_high, is_negative=is_negative)
    for is_high in (False, True)
    for is_negative in (False, True)
]


BOUNDS = st.integers(-2000, 2000) | st.decimals(-2000, 2000, places=2).map(float)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.sampled_from(["integer", "number"]),
    st.none() | BOUNDS,
    st.none() | BOUNDS,
    st.booleans(),
    st.booleans(),
    st.integers(0, 100),
)
def test_a_number_is_in_its_range(
    kind: str, low: float | None, high: float | None, is_low: bool, is_high: bool, seed: int
) -> None:
    schema: dict[str, object] = {"type": kind}
    if low is not None:
        schema["exclusiveMinimum" if is_low else "minimum"] = low
    if high is not None:
        schema["exclusiveMaximum" if is_high else "maximum"] = high
    try:
        grammar = for_schema(json.dumps(schema))
    except GrammarError:
        assert low is not None
        assert high is not None
        assert high - low < 1, schema
        return
    for choose in (*EXTREMES, at_random(seed, 6)):
        walked = walk(grammar, choose)
        assert walked.is_finished
        value = Decimal(walked.text.decode())
        for number in (value, Decimal(str(json.loads(walked.text)))):
            if low is not None:
                assert number > Decimal(str(low)) or (number == Decimal(str(low)) and not is_low)
            if high is not None:
                assert number < Decimal(str(high)) or (number == Decimal(str(high)) and not is_high)
        assert kind == "number" or value == value.to_integral_value()


@pytest.mark.parametrize(
    ("low", "high", "numbers"),
    [
        (0, 9, range(10)),
        (7, 12, range(7, 13)),
        (-3, 2, range(-3, 3)),
        (99, 101, range(99, 102)),
        (-101, -99, range(-101, -98)),
        (1000, 1000, [1000]),
    ],
)
def test_every_integer_of_a_range_comes_out(low: int, high: int, numbers: range) -> None:
    source = json.dumps({"type": "integer", "minimum": low, "maximum": high})
    grammar = for_schema(source)
    found = {int(walk(grammar, at_random(seed, 8)).text) for seed in range(200)}
    assert found == set(numbers)


@pytest.mark.parametrize(("multiple", "least"), [(2, 20), (7, 20), (10, 10), (128, 5)])
def test_multiples_are_multiples(multiple: int, least: int) -> None:
    grammar = for_schema(json.dumps({"type": "integer", "multipleOf": multiple}))
    found = {int(walk(grammar, at_random(seed, 4)).text) for seed in range(60)}
    assert len(found) >= least
    assert all(number % multiple == 0 for number in found)


def test_a_bound_that_doubles_cannot_tell_apart_is_kept() -> None:
    """1.4999999999999999 is 1.5 for whoever reads it as a double."""
    grammar = for_schema('{"type": "number", "minimum": 1, "exclusiveMaximum": 1.5}')
    text = walk(grammar, extreme(is_high=True)).text
    assert text.startswith(b"1.49")
    assert json.loads(text) < 1.5
