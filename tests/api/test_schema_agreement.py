"""The documented schemas and the validation say the same: neither takes what the other refuses."""

import json
from typing import Any

import orjson
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.schema_kit import CASES, SchemaBench, check_envelope, names, open_both
from tests.api.schema_strategies import invalid_for, valid_for

# Each example is a server that takes several bodies.
_FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _bodies_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Valid bodies: the small one with some fields over it."""
    case = CASES[name]
    fields = {field: valid_for(schema) for field, schema in case.schema["properties"].items()}
    # The name of the model is a matter of what is served.
    fields.pop("model", None)
    chosen = st.lists(st.sampled_from(sorted(fields)), max_size=4, unique=True)
    return chosen.flatmap(
        lambda names: st.fixed_dictionaries({field: fields[field] for field in names})
    ).map(lambda over: {**case.base, **over})


@pytest.mark.parametrize("name", CASES)
def test_what_the_schema_allows_is_served_or_refused_by_a_documented_rule(name: str) -> None:
    """A schema that is too wide would send clients into refusals it says nothing of."""
    case = CASES[name]

    @_FEW
    @given(st.lists(_bodies_of(name), min_size=1, max_size=10))
    def check(bodies: list[dict[str, Any]]) -> None:
        async def send(bench: SchemaBench) -> None:
            for body in bodies:
                assert case.is_valid(body)
                answer = await bench.send(case, orjson.dumps(body))
                if answer.status != 200:
                    error = check_envelope(answer)
                    assert case.is_refusal(answer), (body, error)

        _run(send)

    check()


@pytest.mark.parametrize("name", CASES)
def test_what_the_schema_does_not_allow_is_refused_by_the_name_of_the_field(name: str) -> None:
    """A schema that is too narrow would keep clients from what is served."""
    case = CASES[name]
    wrong = {
        path: invalid_for(case.field_schema(path))
        for path in case.paths()
        if case.field_schema(path) and path[0] != "extra_key"
    }
    mistakes = st.sampled_from(sorted(wrong)).flatmap(
        lambda path: st.tuples(st.just(path), wrong[path])
    )

    @_FEW
    @given(st.lists(mistakes, min_size=1, max_size=10))
    def check(mistakes: list[tuple[tuple[str, ...], Any]]) -> None:
        async def send(bench: SchemaBench) -> None:
            for path, value in mistakes:
                data = case.with_raw(path, json.dumps(value))
                answer = await bench.send(case, data)
                error = check_envelope(answer)
                assert names(error["param"], path), (path, value, error)

        _run(send)

    check()


def _run(send: Any) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            bench = await open_both(nursery)
            await send(bench)
            bench.check_idle()
            nursery.cancel_scope.cancel()

    trio.run(main)
