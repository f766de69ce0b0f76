"""Kinds of values that name tokens: prompts, stop tokens, biases."""

from collections.abc import Iterable
from typing import Any

from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.kinds import JsonSchema, Kind, as_float, as_int, wrong_type
from trioserve.api.schema.limits import Limits

TokenIds = tuple[int, ...]
Prompt = str | TokenIds

NO_SUCH_TOKEN = -1
"""Stands for a `logit_bias` key that is no token id of any vocabulary."""

MAX_ID_DIGITS = 19
"""More digits than any vocabulary's ids have would only be slow to read."""

PROMPT_KINDS = (
    "prompt must be a string, an array of strings, an array of token ids, or an array of arrays "
    "of token ids"
)
EMPTY_PROMPT = "Prompt cannot be empty"


@frozen
class Prompts(Kind):
    """One prompt or many, as text or as token ids; read as a tuple of prompts."""

    def read(self, value: Any, name: str) -> tuple[Prompt, ...]:
        """See Kind."""
        if isinstance(value, str):
            prompts: tuple[Prompt, ...] = (value,)
        elif not isinstance(value, list):
            raise invalid(PROMPT_KINDS, name, "invalid_type")
        elif not value:
            raise invalid(EMPTY_PROMPT, name)
        elif _types_of(value) == {str}:
            prompts = tuple(value)
        elif _types_of(value) == {list}:
            prompts = tuple(_read_token_ids(element, name, PROMPT_KINDS) for element in value)
        else:
            prompts = (_read_token_ids(value, name, PROMPT_KINDS),)
        if not all(prompts):
            raise invalid(EMPTY_PROMPT, name)
        return prompts

    def check(self, value: tuple[Prompt, ...], name: str, limits: Limits) -> None:
        """See Kind."""
        if len(value) > limits.max_prompts:
            raise invalid(
                f"{name} has {len(value)} entries, the limit is {limits.max_prompts}", name
            )
        _check_token_ids(value, name, limits.vocab_size)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        text = {"type": "string", "minLength": 1}
        ids = _token_ids_schema(limits, {"minItems": 1})
        arrays = [
            {"type": "array", "items": kind, "minItems": 1, "maxItems": limits.max_prompts}
            for kind in (text, ids)
        ]
        return {"anyOf": [text, arrays[0], ids, arrays[1]]}


@frozen
class RawPrompt(Kind):
    """One prompt that no template is applied to."""

    def read(self, value: Any, name: str) -> Prompt:
        """See Kind."""
        kinds = f"{name} must be a string"
        if isinstance(value, list):
            prompt: Prompt = _read_token_ids(value, name, kinds)
        elif isinstance(value, str):
            prompt = value
        else:
            raise invalid(kinds, name, "invalid_type")
        if not prompt:
            raise invalid(EMPTY_PROMPT, name)
        return prompt

    def check(self, value: Prompt, name: str, limits: Limits) -> None:
        """See Kind."""
        _check_token_ids([value], name, limits.vocab_size)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        ids = _token_ids_schema(limits, {"minItems": 1})
        return {"anyOf": [{"type": "string", "minLength": 1}, ids]}


@frozen
class StopTokenIds(Kind):
    """An array of token ids, perhaps empty."""

    def read(self, value: Any, name: str) -> TokenIds:
        """See Kind."""
        if not isinstance(value, list):
            raise wrong_type(name, "an array")
        if _types_of(value) <= {int}:
            return tuple(value)
        return tuple(as_int(element, f"{name}[{index}]") for index, element in enumerate(value))

    def check(self, value: TokenIds, name: str, limits: Limits) -> None:
        """See Kind."""
        if value and not (min(value) >= 0 and max(value) < limits.vocab_size):
            raise invalid(f"{name} must be token ids in [0, {limits.vocab_size - 1}]", name)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return _token_ids_schema(limits, {})


@frozen
class LogitBias(Kind):
    """An object from token ids, written as strings, to what is added to their logits."""

    def read(self, value: Any, name: str) -> tuple[tuple[int, float], ...]:
        """See Kind. A key that is not a number becomes `NO_SUCH_TOKEN`."""
        if not isinstance(value, dict):
            raise wrong_type(name, "an object")
        bias = {}
        for key, element in value.items():
            is_id = key.isascii() and key.isdecimal() and len(key) <= MAX_ID_DIGITS
            added = as_float(element, f"{name}.{key}" if is_id else name)
            if not -100 <= added <= 100:
                raise invalid(f"{name} values must be between -100 and 100", name)
            bias[int(key) if is_id else NO_SUCH_TOKEN] = added
        return tuple(bias.items())

    def check(self, value: tuple[tuple[int, float], ...], name: str, limits: Limits) -> None:
        """See Kind."""
        if any(not 0 <= token_id < limits.vocab_size for token_id, _ in value):
            raise invalid(f"{name} keys must be token ids in [0, {limits.vocab_size - 1}]", name)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind. That the ids are below the vocabulary's size is more than a pattern says."""
        return {
            "type": "object",
            "propertyNames": {"pattern": f"^[0-9]{{1,{MAX_ID_DIGITS}}}$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        }


def _token_ids_schema(limits: Limits, bounds: JsonSchema) -> JsonSchema:
    token_id = {"type": "integer", "minimum": 0, "maximum": limits.vocab_size - 1}
    return {"type": "array", "items": token_id, **bounds}


def _check_token_ids(prompts: Iterable[Prompt], name: str, vocab_size: int) -> None:
    for prompt in prompts:
        if isinstance(prompt, str) or (min(prompt) >= 0 and max(prompt) < vocab_size):
            continue
        wrong = next(token_id for token_id in prompt if not 0 <= token_id < vocab_size)
        raise invalid(f"{name} contains token id {wrong} outside [0, {vocab_size - 1}]", name)


def _read_token_ids(value: list[Any], name: str, kinds: str) -> TokenIds:
    """Token ids; `kinds` is the message for anything else."""
    types = _types_of(value)
    if types <= {int}:
        return tuple(value)
    if types <= {int, float} and all(element == int(element) for element in value):
        return tuple(map(int, value))
    raise invalid(kinds, name, "invalid_type")


def _types_of(values: list[Any]) -> set[type]:
    # Millions of token ids fit in a body: no loop in Python over each.
    return set(map(type, values))
