"""The body of `POST /v1/chat/completions`."""

from typing import Any

from attrs import frozen

from trioserve.api.schema.declare import param, read_object
from trioserve.api.schema.generation import GenerationBody
from trioserve.api.schema.ignored import note_unknown
from trioserve.api.schema.kinds import AnyInteger, AnyObject, Boolean, Choice, Integer, NumLogprobs
from trioserve.api.schema.messages import Messages
from trioserve.api.schema.structured import FORMAT_DOC, ResponseFormat
from trioserve.api.schema.tokens import Prompt, RawPrompt
from trioserve.api.schema.tools import ToolChoice, ToolChoiceKind, Tools
from trioserve.api.schema.unsupported import never_on_chat, unbuilt
from trioserve.grammar.constraint import Constraint

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
    response_format: Constraint | None = param(ResponseFormat(is_flat_read=True), None, FORMAT_DOC)
    tools: tuple[dict[str, Any], ...] = param(Tools(), (), "Functions that the model may call.")
    tool_choice: ToolChoice | None = param(
        ToolChoiceKind(),
        None,
        "`auto` lets the model decide, and is the default with tools; `none` shows it no tools; "
        "`required`, or a function by name, makes it call one.",
    )
    parallel_tool_calls: bool = param(Boolean(), True, "Allow more than one call in a reply.")
    separate_reasoning: bool = param(
        Boolean(), True, "Report a reasoning block apart, where the server looks for one."
    )
    stream_reasoning: bool = param(
        Boolean(), True, "Stream the block as it comes, and not in one piece at its end."
    )
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
    def active_choice(self) -> ToolChoice | None:
        """How tools are to be used; None if they are not."""
        choice = self.tool_choice or ToolChoice("auto")
        return choice if self.tools and choice.mode != "none" else None

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
