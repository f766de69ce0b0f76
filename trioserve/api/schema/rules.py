"""Rules between fields that are valid alone and not together.

Apart from parsing, because the contract has the model looked up in between. Each is one row of a
table, which the API's document lists too: a schema cannot say them.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.chat import ChatBody
from trioserve.api.schema.completions import CompletionBody
from trioserve.api.schema.generation import GenerationBody
from trioserve.api.schema.structured import ONLY_ONE, constraints_of, has_several
from trioserve.api.schema.tools import EMPTY_TOOLS
from trioserve.api.schema.unsupported import NOT_ON_CHAT


@frozen
class Rule:
    """One rule; `is_broken` is asked of a whole body."""

    param: str
    message: str
    is_broken: Callable[[Any], bool]
    code: str = "invalid_value"


ONE_CONSTRAINT = Rule("response_format", ONLY_ONE, has_several)

COMPLETION_RULES = (
    ONE_CONSTRAINT,
    Rule(
        "max_tokens",
        "max_tokens must be at least 1 unless echo is true",
        lambda body: body.max_tokens == 0 and not body.echo,
    ),
    Rule(
        "best_of",
        "best_of must be greater than or equal to n",
        lambda body: body.num_samples < body.n,
    ),
    Rule(
        "best_of",
        "best_of cannot be used with stream",
        lambda body: body.stream and body.num_samples > body.n,
    ),
)

CHAT_RULES = (
    ONE_CONSTRAINT,
    Rule(
        "prompt",
        "only one of messages or prompt may be provided",
        lambda body: body.prompt is not None and body.messages is not None,
    ),
    Rule(
        "messages",
        "either messages or prompt must be provided",
        lambda body: body.prompt is None and body.messages is None,
        "missing_required_parameter",
    ),
    Rule(
        "tools",
        "tools cannot be used with prompt",
        lambda body: body.prompt is not None and bool(body.tools),
    ),
    Rule(
        "tool_choice",
        EMPTY_TOOLS,
        lambda body: (
            not body.tools and body.tool_choice is not None and body.tool_choice.mode != "none"
        ),
    ),
    Rule(
        "tool_choice",
        "structured output cannot be combined with a forced tool call",
        lambda body: (
            body.active_choice is not None
            and body.active_choice.is_forced
            and bool(constraints_of(body))
        ),
    ),
    Rule(
        "best_of",
        f"best_of {NOT_ON_CHAT}",
        lambda body: body.best_of not in (None, body.n),
        "unsupported_parameter",
    ),
    Rule(
        "top_logprobs",
        "top_logprobs requires logprobs to be true",
        lambda body: body.top_logprobs > 0 and not body.logprobs,
    ),
)

MIN_TOKENS = "min_tokens must be in [0, max_tokens]"
NO_TOKEN_LEFT = "min_tokens needs a token that does not stop the choice"

RULES: dict[type, tuple[Rule, ...]] = {CompletionBody: COMPLETION_RULES, ChatBody: CHAT_RULES}


def require_rules(rules: Iterable[Rule], body: Any) -> None:
    """Raise RequestError for the first rule that is broken."""
    for rule in rules:
        if rule.is_broken(body):
            raise invalid(rule.message, rule.param, rule.code)


def check_rules(body: CompletionBody | ChatBody) -> None:
    """Raise RequestError for the first rule of its endpoint that is broken."""
    require_rules(RULES[type(body)], body)


def check_min_tokens(
    body: GenerationBody, max_tokens: int, eos_ids: Collection[int], vocab_size: int
) -> None:
    """Raise RequestError for a `min_tokens` that `max_tokens`, the final limit, does not allow.

    Also where every token of the vocabulary would stop the choice, and so none could be drawn
    before it may stop.
    """
    if body.min_tokens > max_tokens:
        raise invalid(MIN_TOKENS, "min_tokens")
    stops = set(body.stop_token_ids)
    stops.update(() if body.ignore_eos else eos_ids)
    if body.min_tokens > 0 and len(stops) >= vocab_size:
        raise invalid(NO_TOKEN_LEFT, "min_tokens")
