"""Fields that have one value for the whole request, or one for each of its texts."""

from typing import Any

from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.kinds import JsonSchema, Kind, wrong_type
from trioserve.api.schema.limits import Limits
from trioserve.api.schema.tokens import StopTokenIds


@frozen
class OneOrMany:
    """Values that are one for the whole request, or one for each prompt."""

    values: tuple[Any, ...]
    is_many: bool
    """Given as an array; an array of one is many, too."""

    def for_each(self, num_prompts: int) -> tuple[Any, ...]:
        """One value a prompt. What is many must be as many."""
        return self.values if self.is_many else self.values * num_prompts


@frozen
class OneOrManyOf(Kind):
    """A value of `element`, or an array of them that is not empty."""

    element: Kind
    type: type
    """Of one value, as JSON has it. Where it is a list, many are a list of lists."""
    must_be: str
    """What a value of another type must be."""
    empty: str | None = None
    """What to say of an empty array of values, where that has words of its own."""

    def read(self, value: Any, name: str) -> OneOrMany:
        """See Kind."""
        if not (isinstance(value, list) or type(value) is self.type):
            raise wrong_type(name, self.must_be)
        if not self._is_many(value):
            return OneOrMany((self.element.read(value, name),), is_many=False)
        return OneOrMany(self._read_many(value, name), is_many=True)

    def check(self, value: OneOrMany, name: str, limits: Limits) -> None:
        """See Kind."""
        num_values = len(value.values)
        if value.is_many and num_values > limits.max_prompts:
            raise invalid(
                f"{name} has {num_values} entries, the limit is {limits.max_prompts}", name
            )
        for each in value.values:
            self.element.check(each, name, limits)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        element = self.element.json_schema(limits)
        many = {"type": "array", "items": element, "minItems": 1, "maxItems": limits.max_prompts}
        return {"anyOf": [element, many]}

    def _read_many(self, values: Any, name: str) -> tuple[Any, ...]:
        if not values:
            raise invalid(self.empty or f"{name} cannot be empty", name)
        return tuple(self.element.read(each, f"{name}[{i}]") for i, each in enumerate(values))

    def _is_many(self, value: Any) -> bool:
        if self.type is list:
            return bool(value) and isinstance(value[0], list)
        return isinstance(value, list)


@frozen
class TokenIdArray(Kind):
    """The token ids of one text."""

    empty: str | None = None
    """What to say of an array without any, where that is refused."""

    def read(self, value: Any, name: str) -> tuple[int, ...]:
        """See Kind."""
        token_ids = StopTokenIds().read(value, name)
        if not token_ids and self.empty is not None:
            raise invalid(self.empty, name)
        return token_ids

    def check(self, value: tuple[int, ...], name: str, limits: Limits) -> None:
        """See Kind."""
        most = limits.vocab_size - 1
        if value and (min(value) < 0 or max(value) > most):
            wrong = next(token_id for token_id in value if not 0 <= token_id <= most)
            raise invalid(f"{name} contains token id {wrong} outside [0, {most}]", name)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        least = {} if self.empty is None else {"minItems": 1}
        return {**StopTokenIds().json_schema(limits), **least}
