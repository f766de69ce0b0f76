"""The body of `POST /generate`, and of the `sampling_params` inside it."""

from typing import Any

import attrs
from attrs import field, frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.declare import check_limits, object_schema, param, read_object
from trioserve.api.schema.generation import MAX_RID_CHARS, BooleanOrLast, GenerationBody
from trioserve.api.schema.ignored import IgnoredFields, note_unknown
from trioserve.api.schema.kinds import (
    INT64_MAX,
    INT64_MIN,
    Boolean,
    Integer,
    JsonSchema,
    Kind,
    NumLogprobs,
    Text,
    wrong_type,
)
from trioserve.api.schema.limits import Limits
from trioserve.api.schema.one_or_many import OneOrMany, OneOrManyOf, TokenIdArray
from trioserve.api.schema.structured import (
    EBNF_DOC,
    REGEX_DOC,
    SCHEMA_DOC,
    GrammarText,
    SchemaText,
)
from trioserve.api.schema.tokens import EMPTY_PROMPT, StopTokenIds
from trioserve.api.schema.unsupported import unbuilt
from trioserve.grammar.constraint import Constraint, GrammarKind

DEFAULT_MAX_NEW_TOKENS = 128
MAX_TOKEN_IDS_LOGPROB = 128
"""Each is looked up at every position, and a prompt may have many."""


def _like(name: str) -> Any:
    """The field as completions and chat declare it."""
    attribute = getattr(attrs.fields(GenerationBody), name)
    return field(default=attribute.default, metadata=attribute.metadata)


@frozen(kw_only=True)
class NativeSampling:
    """How to go on from one prompt, or from all."""

    max_new_tokens: int | None = param(
        Integer(0, None, "max_new_tokens must be at least 0"),
        None,
        f"Most tokens generated for each sample; {DEFAULT_MAX_NEW_TOKENS} if left out.",
    )
    min_new_tokens: int = param(
        Integer(0, None, "min_new_tokens must be in [0, max_new_tokens]"),
        0,
        "Nothing stops a sample before so many tokens.",
    )
    n: int = _like("n")
    temperature: float = _like("temperature")
    top_p: float = _like("top_p")
    top_k: int = _like("top_k")
    min_p: float = _like("min_p")
    sampling_seed: int | None = param(
        Integer(INT64_MIN, INT64_MAX, "sampling_seed must be a 64-bit integer"),
        None,
        "Makes sampling repeatable.",
    )
    frequency_penalty: float = _like("frequency_penalty")
    presence_penalty: float = _like("presence_penalty")
    repetition_penalty: float = _like("repetition_penalty")
    logit_bias: tuple[tuple[int, float], ...] = _like("logit_bias")
    ignore_eos: bool = _like("ignore_eos")
    stop: tuple[str, ...] = _like("stop")
    stop_token_ids: tuple[int, ...] = _like("stop_token_ids")
    stop_regex: tuple[str, ...] = _like("stop_regex")
    no_stop_trim: bool = _like("no_stop_trim")
    skip_special_tokens: bool = _like("skip_special_tokens")
    json_schema: Constraint | None = param(SchemaText(), None, SCHEMA_DOC)
    regex: Constraint | None = param(GrammarText(GrammarKind.REGEX), None, REGEX_DOC)
    ebnf: Constraint | None = param(GrammarText(GrammarKind.EBNF), None, EBNF_DOC)
    structural_tag: None = unbuilt("Tags in the output.")
    custom_params: None = unbuilt("Parameters of code that runs in the server.")

    @property
    def seed(self) -> int | None:
        """`sampling_seed`, by the name that it has on the other endpoints."""
        return self.sampling_seed

    @property
    def min_tokens(self) -> int:
        """`min_new_tokens`, by the name that it has on the other endpoints."""
        return self.min_new_tokens

    @property
    def max_tokens(self) -> int:
        """Most tokens generated, before it is known what the prompt leaves of that."""
        return DEFAULT_MAX_NEW_TOKENS if self.max_new_tokens is None else self.max_new_tokens


@frozen
class TokenIdsLogprob(StopTokenIds):
    """Token ids to report at each position."""

    def read(self, value: Any, name: str) -> tuple[int, ...]:
        """See Kind."""
        token_ids = super().read(value, name)
        if len(token_ids) > MAX_TOKEN_IDS_LOGPROB:
            raise invalid(
                f"{name} has {len(token_ids)} entries, the limit is {MAX_TOKEN_IDS_LOGPROB}", name
            )
        return token_ids

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return {**super().json_schema(limits), "maxItems": MAX_TOKEN_IDS_LOGPROB}


@frozen
class SamplingObject(Kind):
    """A `NativeSampling`; unknown fields in it are ignored, as everywhere."""

    def read(self, value: Any, name: str) -> NativeSampling:
        """See Kind."""
        if not isinstance(value, dict):
            raise wrong_type(name, "an object")
        note_unknown(NativeSampling, value)
        # Without the name of the object around it: the API knows a parameter by its own.
        return read_object(NativeSampling, value)

    def check(self, value: NativeSampling, name: str, limits: Limits) -> None:
        """See Kind."""
        check_limits(value, limits)

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind."""
        return object_schema(NativeSampling, limits)


@frozen(kw_only=True)
class NativeGenerateBody(IgnoredFields):
    """Fields of the whole request."""

    text: OneOrMany | None = param(
        OneOrManyOf(Text(empty=EMPTY_PROMPT), str, "a string or an array", empty=EMPTY_PROMPT),
        None,
        "The prompt, or several.",
    )
    input_ids: OneOrMany | None = param(
        OneOrManyOf(TokenIdArray(empty=EMPTY_PROMPT), list, "an array"),
        None,
        "The same as token ids.",
    )
    sampling_params: OneOrMany = param(
        OneOrManyOf(SamplingObject(), dict, "an object or an array"),
        OneOrMany((NativeSampling(),), is_many=False),
        "How to sample: one object for all prompts, or one for each.",
    )
    rid: OneOrMany | None = param(
        OneOrManyOf(
            Text(empty="rid cannot be empty", max_chars=MAX_RID_CHARS),
            str,
            "a string or an array",
        ),
        None,
        "The reply's id, and the handle for aborting it; of several prompts each may have its own.",
    )
    return_logprob: bool = param(Boolean(), False, "Report the logprob of each token.")
    logprob_start_len: int = param(
        Integer(-1, None, "logprob_start_len must be at least -1"),
        -1,
        "First prompt token whose logprob is reported; 0 reports the whole prompt, -1 none of it.",
    )
    top_logprobs_num: int = param(
        NumLogprobs("top_logprobs_num must be"),
        0,
        "Report so many most likely tokens at each position.",
    )
    token_ids_logprob: tuple[int, ...] = param(
        TokenIdsLogprob(), (), "Report the logprobs of these tokens at each position."
    )
    return_text_in_logprobs: bool = param(
        Boolean(), False, "Report tokens' texts beside their ids."
    )
    stream: bool = _like("stream")
    return_hidden_states: bool = param(
        BooleanOrLast(), False, "Report what each generated token was drawn from."
    )
    return_routed_experts: bool = _like("return_routed_experts")
    return_cached_tokens_details: bool = _like("return_cached_tokens_details")
    cache_salt: str | None = _like("cache_salt")
    priority: int = _like("priority")
    lora_path: None = _like("lora_path")
    modalities: None = _like("modalities")
    input_embeds: None = _like("input_embeds")
    custom_logit_processor: None = _like("custom_logit_processor")
    image_data: None = unbuilt("Image input.")
    video_data: None = unbuilt("Video input.")
    audio_data: None = unbuilt("Audio input.")

    @property
    def prompts(self) -> OneOrMany:
        """Texts or token ids; `check_native_rules` makes sure that there are either."""
        prompts = self.input_ids if self.text is None else self.text
        assert prompts is not None, "a request without a prompt"
        return prompts

    @property
    def prompt_param(self) -> str:
        """The field that the prompt comes from."""
        return "input_ids" if self.text is None else "text"

    @property
    def num_samples(self) -> int:
        """Sequences a prompt."""
        return int(self.sampling_params.values[0].n)


def parse_native_generate(body: dict[str, Any]) -> NativeGenerateBody:
    """Raises RequestError for the first thing that is wrong."""
    request = read_object(NativeGenerateBody, body)
    note_unknown(NativeGenerateBody, body)
    return request
