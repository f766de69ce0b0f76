"""The body of `POST /v1/chat/completions`."""

from typing import Any

from attrs import frozen

from trioserve.api.schema.declare import param, read_object
from trioserve.api.schema.generation import GenerationBody
from trioserve.api.schema.ignored import WITHOUT_EFFECT, note_unknown
from trioserve.api.schema.kinds import AnyInteger, AnyObject, Boolean, Choice, Integer, NumLogprobs
from trioserve.api.schema.messages import Messages
from trioserve.api.schema.tokens import Prompt, RawPrompt
from trioserve.api.schema.unsupported import never_on_chat, unbuilt

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@frozen(kw_only=True)
class ChatBody(GenerationBody):
    """See GenerationBody."""

    messages: tuple[dict[str, Any], ...] | None = param(Messages(), None, "The conversation.")
    prompt: Prompt | None = param(
        RawPrompt(), None, "A raw prompt instead of messages: no template is applied."
    )
    max_tokens: int | None = param(
        Integer(1, None, "max_tokens must be at least 1"),
        None,
        "Most tokens generated for each choice; the server's default if left out.",
    )
    logprobs: bool = param(Boolean(), False, "Report the logprob of each token.")
    top_logprobs: int = param(
        NumLogprobs("top_logprobs must be"),
        0,
        "Report so many most likely tokens for each token.",
    )
    chat_template_kwargs: dict[str, Any] = param(
        AnyObject(), {}, "More variables for the chat template."
    )
    continue_final_message: bool = param(
        Boolean(), False, "The last message is the assistant's beginning, which the reply goes on."
    )
    reasoning_effort: str | None = param(Choice(EFFORTS), None, "Given to the chat template.")
    tools: None = unbuilt("Functions that the model may call.", [])
    tool_choice: None = unbuilt("Which tool to call.", "none", "auto")
    # Without tools there are no calls to make in parallel.
    parallel_tool_calls: bool | None = param(Boolean(), None, WITHOUT_EFFECT, is_served=False)
    # No reasoning parser is built, so there is nothing to separate.
    separate_reasoning: bool | None = param(Boolean(), None, WITHOUT_EFFECT, is_served=False)
    stream_reasoning: bool | None = param(Boolean(), None, WITHOUT_EFFECT, is_served=False)
    input_ids: None = unbuilt("Use `prompt`.")
    return_meta_info: None = unbuilt("Report about the request.", False)
    echo: None = never_on_chat("Begin the text with the prompt.", False)
    suffix: None = never_on_chat("Text after the completion.", "")
    best_of: int | None = param(
        AnyInteger(),
        None,
        "Not on chat completions: only the value of n.",
        is_served=False,
    )

    @property
    def num_samples(self) -> int:
        """Sequences a prompt."""
        return self.n

    @property
    def prompt_param(self) -> str:
        """The field that the prompt comes from."""
        return "prompt" if self.messages is None else "messages"


def parse_chat(body: dict[str, Any]) -> ChatBody:
    """Raises RequestError for the first thing that is wrong."""
    request = read_object(ChatBody, body)
    note_unknown(ChatBody, body)
    return request
