"""The body of `POST /v1/embeddings`."""

from typing import Any

from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.declare import param, read_object, required
from trioserve.api.schema.generation import MODEL_REQUIRED, ModelName
from trioserve.api.schema.ignored import IgnoredFields, note_unknown
from trioserve.api.schema.kinds import AnyInteger, Choice, JsonSchema
from trioserve.api.schema.limits import Limits
from trioserve.api.schema.tokens import Prompt, Prompts, TokenIds
from trioserve.api.schema.unsupported import NO_LORA, NoAdapter
from trioserve.errors import RequestError

_KINDS = (
    "input must be a string, an array of strings, an array of token ids, or an array of arrays "
    "of token ids"
)


@frozen
class Inputs(Prompts):
    """One text or many, as text or as token ids; read as a tuple of texts, none of them blank."""

    def read(self, value: Any, name: str) -> tuple[Prompt, ...]:
        """See Kind."""
        if isinstance(value, str):
            if not value.strip():
                raise _empty(name)
            return (value,)
        if not isinstance(value, list):
            raise invalid(_KINDS, name, "invalid_type")
        if not value:
            raise _empty(name)
        kinds = set(map(type, value))
        if kinds not in ({str}, {list}):
            return (_token_ids(value, name),)
        for index, element in enumerate(value):
            if not (element.strip() if isinstance(element, str) else element):
                raise _empty(f"{name}[{index}]")
        if kinds == {str}:
            return tuple(value)
        return tuple(_token_ids(element, name) for element in value)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        token_id = {"type": "integer", "minimum": 0, "maximum": limits.vocab_size - 1}
        text = {"type": "string", "pattern": r"\S"}
        ids = {"type": "array", "items": token_id, "minItems": 1}
        arrays = [
            {"type": "array", "items": kind, "minItems": 1, "maxItems": limits.max_prompts}
            for kind in (text, ids)
        ]
        return {"anyOf": [text, arrays[0], ids, arrays[1]]}


@frozen
class Dimensions(AnyInteger):
    """A number of components; which ones there are is the model's business."""

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {"type": "integer", "minimum": 1}


@frozen(kw_only=True)
class EmbeddingBody(IgnoredFields):
    """What to embed, and in which form the vectors come."""

    model: str = required(ModelName(), "A served name, or the model path.", MODEL_REQUIRED)
    input: tuple[Prompt, ...] = required(
        Inputs(), "Text or token ids, one or many.", "input is required"
    )
    dimensions: int | None = param(
        Dimensions(),
        None,
        "Keep so many of the first components; only for models that were made for it.",
    )
    encoding_format: str = param(
        Choice(("float", "base64")),
        "float",
        "Arrays of numbers, or base64 of little-endian 32-bit floats.",
    )
    lora_path: None = param(NoAdapter(), None, NO_LORA, is_served=False)


def parse_embedding(body: dict[str, Any]) -> EmbeddingBody:
    """Raises RequestError for the first thing that is wrong."""
    request = read_object(EmbeddingBody, body)
    note_unknown(EmbeddingBody, body)
    return request


def _empty(name: str) -> RequestError:
    return invalid(f"{name} cannot be empty", name)


def _token_ids(value: list[Any], name: str) -> TokenIds:
    # Millions of token ids fit in a body: no loop in Python over each.
    types = set(map(type, value))
    if types <= {int}:
        return tuple(value)
    if types <= {int, float} and all(element == int(element) for element in value):
        return tuple(map(int, value))
    raise invalid(_KINDS, name, "invalid_type")
