"""A model's own chat template: Jinja in a sandbox, rendered as transformers renders it.

Rejected: transformers' renderer itself. Importing it takes a second and brings an HTTP client and
numpy along; what chat templates rely on is the page of Jinja settings below.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trioserve.errors import ConfigError, TrioserveError
from trioserve.text.template_calls import (
    PROBE_TOOLS,
    CallForm,
    find_call_form,
    has_calls,
    in_form,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2.parser import Parser

_MAX_DETAIL_CHARS = 200

RESERVED_VARIABLES = frozenset({"add_generation_prompt", "documents", "messages", "tools"})
"""What a template is always given, and nobody else may set."""

NO_VARIABLES: Mapping[str, Any] = MappingProxyType({})

_OPEN_END = "THE_FINAL_MESSAGE_IS_OPEN_HERE "
"""Marks where the words of an open message end. The space shows whether the template trims."""


class ChatTemplateError(TrioserveError):
    """The template refused these messages or failed on them; `detail` is one short line."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class ChatTemplateMissing(TrioserveError):
    """The model has no chat template, so messages cannot be rendered."""


class ChatTemplate:
    """One compiled template; shared by all requests, changes nothing.

    `variables` are the names of special tokens that templates write (`bos_token`, `eos_token`, …).
    Raises ConfigError when the source is not valid Jinja.

    The sandbox keeps a template from reaching outside of its data and bounds `range`; a loop over
    the messages is bounded by them.
    """

    def __init__(self, source: str, variables: Mapping[str, str]) -> None:
        environment = _environment()
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(
                f"the chat template is not valid: {error.message} (line {error.lineno})"
            ) from error
        self._variables = dict(variables)
        self._has_developer_role = "developer" in source
        self._can_iterate_parts = _iterates_parts(tree)
        self._can_take_strings = not self._can_iterate_parts or _tests_for_string(tree)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continues_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> str:
        """The text that the model is to continue.

        Messages are JSON-like mappings with a `role` and a `content`: a string, a list of
        `{"type": "text", "text": …}` parts, or None beside `tool_calls`, whose arguments are JSON
        text. Each is adapted to what the template reads. `tools` are what the model may call, and
        `variables` more that the template may read. With `continues_final_message` the text ends
        with the words of the last message, whose turn stays open, and there is no generation
        prompt. Raises ChatTemplateError.
        """
        if has_calls(messages):
            messages = in_form(messages, self._call_form)
        adapted = [self._adapted(message) for message in messages]
        if continues_final_message:
            _mark_end(adapted[-1])
            add_generation_prompt = False
        text = self._render(adapted, add_generation_prompt, tools, variables)
        return _cut_at_mark(text) if continues_final_message else text

    def _render(
        self,
        messages: list[dict[str, Any]],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
    ) -> str:
        given = {
            **self._variables,
            **variables,
            "messages": messages,
            "tools": list(tools) or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            # Not as keywords: a variable may have the name of one of Jinja's own parameters.
            return self._template.render(given)
        # A template is a program and the messages are its input: besides Jinja's own errors it can
        # raise whatever Python's operators do, and each is this request's fault alone.
        except Exception as error:
            raise ChatTemplateError(_one_line(error)) from error

    @cached_property
    def _call_form(self) -> CallForm:
        """Found when first asked for: most conversations have no calls."""

        def render(messages: Sequence[Mapping[str, Any]]) -> str | None:
            try:
                adapted = [self._adapted(message) for message in messages]
                return self._render(adapted, False, PROBE_TOOLS, NO_VARIABLES)
            except ChatTemplateError:
                return None

        return find_call_form(render)

    def _adapted(self, message: Mapping[str, Any]) -> dict[str, Any]:
        # Templates test for a key more often than for None, and write "None" where they do not.
        adapted = {key: value for key, value in message.items() if value is not None}
        if "tool_calls" in message and message["content"] is None:
            adapted["content"] = None
        if adapted.get("role") == "developer" and not self._has_developer_role:
            adapted["role"] = "system"
        content = adapted.get("content")
        if isinstance(content, str):
            if not self._can_take_strings:
                adapted["content"] = [{"type": "text", "text": content}]
        elif content is not None and not self._can_iterate_parts:
            adapted["content"] = "\n".join(part["text"] for part in content)
        return adapted


def _mark_end(message: dict[str, Any]) -> None:
    """Put the mark behind the words of an adapted message, which is changed."""
    content: Any = message.get("content", "")
    if content is None:
        content = ""
    if isinstance(content, str):
        message["content"] = content + _OPEN_END
    else:
        *parts, last = content or [{"type": "text", "text": ""}]
        message["content"] = [*parts, {**last, "text": last["text"] + _OPEN_END}]


def _cut_at_mark(text: str) -> str:
    """Rejected: looking for the words themselves, which a template may show twice or change."""
    start = text.rfind(_OPEN_END.strip())
    if start < 0:
        raise ChatTemplateError("the template does not show the final message, so it cannot go on")
    is_trimmed = not text.startswith(_OPEN_END, start)
    return text[:start].rstrip() if is_trimmed else text[:start]


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks what an assistant wrote, for training. Here it
    is only a scope."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own attribute, read by it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    # Output is a prompt, not HTML: escaping would change what the model reads.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        extensions=["jinja2.ext.loopcontrols", _GenerationTag],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes for HTML and sorts the keys."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(date_format: str) -> str:
    return datetime.now().astimezone().strftime(date_format)


def _one_line(error: Exception) -> str:
    detail = " ".join(str(error).split()) or type(error).__name__
    return detail if len(detail) <= _MAX_DETAIL_CHARS else detail[: _MAX_DETAIL_CHARS - 1] + "…"


def _iterates_parts(tree: nodes.Template) -> bool:
    """Whether the template loops over a message's content and reads the fields of its parts.

    The content may reach the loop under its own name only, as a macro's argument or a variable.
    """
    return any(_is_content(loop.iter) and _reads_fields(loop) for loop in tree.find_all(nodes.For))


def _is_content(node: nodes.Node) -> bool:
    match node:
        case nodes.Filter(node=nodes.Node() as inner):
            return _is_content(inner)
        case nodes.Getattr(attr="content") | nodes.Name(name="content"):
            return True
        case nodes.Getitem(arg=nodes.Const(value="content")):
            return True
        case _:
            return False


def _reads_fields(loop: nodes.For) -> bool:
    fields = {"type", "text"}
    attributes = {node.attr for node in loop.find_all(nodes.Getattr)}
    constants = {node.value for node in loop.find_all(nodes.Const) if isinstance(node.value, str)}
    return bool(fields & (attributes | constants))


def _tests_for_string(tree: nodes.Template) -> bool:
    return any(test.name == "string" for test in tree.find_all(nodes.Test))
