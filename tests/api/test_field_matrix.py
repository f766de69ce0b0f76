"""Every field of every body against every kind of value that it does not take."""

import json
from typing import Any

import pytest
import trio

from tests.api.schema_kit import CASES, check_envelope, names, open_both

NOT_JSON = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", r'"\ud800"', r'["\udc00a"]')
NUMBERS = (
    "1e30",
    f"{10**30}",
    f"{-(10**30)}",
    f"{-(2**63) - 1}",
    f"{2**64}",
    "0.5",
    "-0.0",
    "16.0",
)
OTHERS = ("0", "1", "-1", '"1"', '"true"', "true", "false", "[]", "{}", "[[]]", "[{}]", "[null]")
TEXTS = ('""', r'"\u0000"', '"no such thing"', f'"{"č" * 500_000}"', '["a", ""]', '[1, "a"]')
NESTED = ("[" * 200 + "]" * 200, '{"a": ' * 200 + "1" + "}" * 200)
HOSTILE = (*NOT_JSON, *NUMBERS, *OTHERS, *TEXTS, *NESTED)

FIELDS = [(name, path) for name, case in CASES.items() for path in case.paths()]


def _beside_the_range(schema: Any) -> set[str]:
    """Integers just in and just out of the ranges that a schema names anywhere."""
    if isinstance(schema, list):
        return set().union(*map(_beside_the_range, schema))
    if not isinstance(schema, dict):
        return set()
    bounds = {schema[key] for key in ("minimum", "exclusiveMinimum", "maximum") if key in schema}
    beside = {str(bound + step) for bound in bounds for step in (-1, 0, 1)}
    return beside.union(*(_beside_the_range(schema.get(key)) for key in ("anyOf", "items")))


@pytest.mark.row("S-E-001", "S-E-007", "S-N-001")
@pytest.mark.case(34, 41, 43, 49, 53)
@pytest.mark.parametrize(
    ("body", "path"), FIELDS, ids=[f"{name}-{'.'.join(path)}" for name, path in FIELDS]
)
async def test_a_value_is_served_or_refused_by_the_name_of_its_field(
    nursery: trio.Nursery, body: str, path: tuple[str, ...]
) -> None:
    """Never a 500, and nothing is planned for what is refused."""
    case = CASES[body]
    bench = await open_both(nursery)
    for raw in (*HOSTILE, *sorted(_beside_the_range(case.field_schema(path)))):
        data = case.with_raw(path, raw)
        num_plans = bench.num_plans
        answer = await bench.send(case, data)
        sent = raw[:60]
        if raw in NOT_JSON:
            error = check_envelope(answer)
            assert error["error"]["code"] == "invalid_json", sent
            assert error["param"] is None
        elif not case.is_valid(json.loads(data)):  # which keeps integers exact
            error = check_envelope(answer)
            assert names(error["param"], path), (sent, error)
        elif answer.status == 400:
            assert case.is_refusal(answer), (sent, check_envelope(answer))
        else:
            # A name of no model is not wrong by its form.
            assert answer.status == (404 if path == ("model",) else 200), (sent, answer.body[:300])
        if answer.status == 400:
            assert bench.num_plans == num_plans, sent
    bench.check_idle()


@pytest.mark.parametrize("body", CASES)
async def test_null_is_the_same_as_nothing_in_every_optional_field(
    nursery: trio.Nursery, body: str
) -> None:
    case = CASES[body]
    bench = await open_both(nursery)
    needed = case.schema["required"]
    for path in case.paths():
        data = case.with_raw(path, "null")
        answer = await bench.send(case, data)
        if path[0] in needed:
            error = check_envelope(answer)
            assert error["error"]["code"] == "missing_required_parameter"
            assert error["param"] == path[0]
        elif not case.is_valid(json.loads(data)):  # an object that lacks what it needs
            assert names(check_envelope(answer)["param"], path)
        elif path[0] in case.base and answer.status == 400:  # without it there is no prompt
            assert case.is_refusal(answer), answer.body
        else:
            assert answer.status == 200, (path, answer.body)
    bench.check_idle()
