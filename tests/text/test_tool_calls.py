"""Calls of tools in each format: found, told once, and never at the cost of a character."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.reply_kit import (
    ARGUMENTS,
    PLACES,
    Read,
    Reader,
    assert_cuts_do_not_matter,
)
from trioserve.text.reply_parts import CallArguments, CallBegun, Content
from trioserve.text.tool_calls.call_text import ToolCall, read_call
from trioserve.text.tool_calls.formats import FORMATS, detect_format
from trioserve.text.tool_calls.json_list import ForcedCallParser
from trioserve.text.tool_calls.wire_format import WireParser

NAMES = frozenset({"f", "get_weather", 'odd "name" ✓'})
CALL = '{"name": "f", "arguments": {"a": 1}}'
OTHER = '{"name": "get_weather", "arguments": {"city": "Plzeň"}}'
UNKNOWN = '{"name": "unknown", "arguments": {}}'
F = ["f", '{"a": 1}']
WEATHER = ["get_weather", '{"city": "Plzeň"}']


def parser(name: str, max_calls: int | None = None) -> WireParser:
    return WireParser(FORMATS[name].wire, NAMES, max_calls=max_calls)


def read_as(name: str, text: str, max_calls: int | None = None) -> Read:
    return assert_cuts_do_not_matter(lambda: parser(name, max_calls), text, [1, 3, 50])


@pytest.mark.row("S-N-009")
@pytest.mark.parametrize(
    ("name", "text", "content", "calls"),
    [
        ("hermes", f"<tool_call>\n{CALL}\n</tool_call>", "", [F]),
        ("qwen25", f"<tool_call>{CALL}</tool_call>", "", [F]),
        ("qwen", f"<tool_call>{CALL}</tool_call>", "", [F]),
        (
            "hermes",
            f"I look.\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{OTHER}\n</tool_call>\n",
            "I look.",
            [F, WEATHER],
        ),
        ("hermes", f"\n\n<tool_call>{CALL}</tool_call>\n\nDone. ", "Done.", [F]),
        ("hermes", f"A\n<tool_call>{CALL}</tool_call>\nB", "A\n\nB", [F]),
        # The model stopped before the end marker, or in it.
        ("hermes", f"<tool_call>{CALL}", "", [F]),
        ("hermes", f"<tool_call>{CALL}\n</tool", "", [F]),
        ("hermes", f"<tool_call>{CALL}<tool_call>{OTHER}</tool_call>", "", [F, WEATHER]),
        ("llama3", CALL, "", [F]),
        ("llama3", f" \n{CALL}", "", [F]),
        ("llama3", f"<|python_tag|>{CALL}", "", [F]),
        ("llama3", f"{CALL}; {OTHER}", "", [F, WEATHER]),
        ("llama3", f"{CALL}\n{OTHER};", "", [F, WEATHER]),
        ("llama3", f"Let me see. <|python_tag|>{CALL};{OTHER}", "Let me see.", [F, WEATHER]),
        ("llama3", f"{CALL} as you wish", "as you wish", [F]),
        ("llama3", CALL.replace("arguments", "parameters"), "", [F]),
        ("mistral", f"[TOOL_CALLS] [{CALL}, {OTHER}]", "", [F, WEATHER]),
        ("mistral", f"Yes.[TOOL_CALLS][{CALL}]", "Yes.", [F]),
        ("mistral", f"[TOOL_CALLS][{CALL}", "", [F]),
        ("mistral", f"[TOOL_CALLS][{CALL},", "", [F]),
        ("json", f"[{CALL}, {OTHER}]", "", [F, WEATHER]),
        ("json", f"[{CALL}] and more", "and more", [F]),
    ],
)
def test_calls_are_found_and_their_markers_are_not_content(
    name: str, text: str, content: str, calls: list[list[str]]
) -> None:
    found = read_as(name, text)
    assert (found.content, found.calls) == (content, calls)
    assert found.num_complete == len(calls)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "no call at all \n"),
        ("hermes", "<tool_call>"),
        ("hermes", "a < b, <tool_c, <tool_cal"),
        ("hermes", f"<tool_call>{UNKNOWN}</tool_call>"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": }}</tool_call> and on'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call> and on'),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": "[1]"}</tool_call>'),
        ("hermes", '<tool_call>{"name": ["f"], "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "cut off'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "\\'),
        ("hermes", "<tool_call> f(a=1) </tool_call>"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "line\nbreak"}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"\\ud800\\"}"}</tool_call>'),
        ("hermes", '<tool_call>{"name":"f","arguments":' + "[" * 5000 + "</tool_call>"),
        ("hermes", CALL),
        ("llama3", '{"answer": 42}'),
        ("llama3", '{"answer": 42'),
        ("llama3", f"The call is {CALL}"),
        ("llama3", "<|python_tag|>print(1)"),
        ("llama3", UNKNOWN),
        ("llama3", " \n "),
        ("mistral", f"[TOOL_CALLS]{CALL}"),
        ("mistral", f"[{CALL}]"),
        ("mistral", f"[TOOL_CALLS][{UNKNOWN}, {CALL}]"),
        ("mistral", "[TOOL_CALLS] []"),
        ("json", f"Here: [{CALL}]"),
        ("json", "[1, 2]"),
        ("json", "["),
    ],
)
def test_what_is_no_call_is_content_unchanged(name: str, text: str) -> None:
    found = read_as(name, text)
    assert (found.content, found.calls) == (text, [])
    assert found.num_complete == 0


@pytest.mark.parametrize(
    ("name", "text", "content", "calls"),
    [
        (
            "hermes",
            f"<tool_call>{UNKNOWN}</tool_call>\n<tool_call>{CALL}</tool_call>",
            f"<tool_call>{UNKNOWN}</tool_call>",
            [F],
        ),
        ("hermes", f"<tool_call><tool_call>{CALL}</tool_call>", "<tool_call>", [F]),
        ("hermes", f"<tool_call>{{1 <tool_call>{CALL}</tool_call>", "<tool_call>{1", [F]),
        ("hermes", f"<tool_<tool_call>{CALL}</tool_call></tool_call>", "<tool_</tool_call>", [F]),
        ("mistral", f"[TOOL_CALLS][{CALL}, {UNKNOWN}]", f", {UNKNOWN}]", [F]),
        ("mistral", f'[TOOL_CALLS][{CALL}, {{"na', ', {"na', [F]),
        ("llama3", f"{CALL}; {UNKNOWN}", f"; {UNKNOWN}", [F]),
    ],
)
def test_a_call_beside_what_is_none_is_still_found(
    name: str, text: str, content: str, calls: list[list[str]]
) -> None:
    found = read_as(name, text)
    assert (found.content, found.calls) == (content, calls)


def test_one_call_may_be_all_that_is_looked_for() -> None:
    text = f"<tool_call>{CALL}</tool_call>\n<tool_call>{OTHER}</tool_call>"
    found = read_as("hermes", text, max_calls=1)
    assert found.calls == [F]
    assert found.content == f"<tool_call>{OTHER}</tool_call>"
    assert read_as("mistral", f"[TOOL_CALLS][{CALL}, {OTHER}]", max_calls=1).calls == [F]
    assert read_as("llama3", f"{CALL};{OTHER}", max_calls=1).calls == [F]


def test_a_call_is_told_with_its_last_character_and_words_as_soon_as_they_are_certain() -> None:
    reader = parser("hermes")
    assert reader.feed("Hello <too") == [Content("Hello", 5)]
    assert reader.feed("t") == [Content(" <toot", 11)]
    assert reader.feed("<tool_call>" + CALL[:-1]) == []
    first, _ = reader.feed("}")
    assert first == CallBegun("f", 11 + len("<tool_call>" + CALL))
    assert reader.feed("</tool_call>") == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": 1.0, "a": 10000000000000000000001, "b": "\\u0041"}', None),
        (" { } ", "{ }"),
        ("null", "{}"),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ('{"n": ' + "1" * 5000 + "}", None),
    ],
)
def test_arguments_are_what_the_model_wrote(arguments: str, expected: str | None) -> None:
    call = read_call('{"name": "f", "arguments": ' + arguments + "}", NAMES)
    assert call == ToolCall("f", arguments if expected is None else expected)
    assert read_call('{"arguments": ' + arguments + ', "id": 1, "name": "f"}', NAMES) == call
    assert read_call('{"name": "f"}', NAMES) == ToolCall("f", "{}")


def _written(name: str, calls: list[tuple[str, dict[str, Any]]], ascii_only: bool) -> str:
    objects = [
        json.dumps({"name": called, "arguments": arguments}, ensure_ascii=ascii_only)
        for called, arguments in calls
    ]
    match name:
        case "hermes":
            return "\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in objects)
        case "llama3":
            return "<|python_tag|>" + "; ".join(objects)
        case _:
            return f"[TOOL_CALLS][{', '.join(objects)}]"


WORDS = st.text(alphabet='ab <[{"\\\n}]>;/_|', max_size=20)


@given(
    name=st.sampled_from(["hermes", "llama3", "mistral"]),
    calls=st.lists(st.tuples(st.sampled_from(sorted(NAMES)), ARGUMENTS), min_size=1, max_size=3),
    before=WORDS,
    ascii_only=st.booleans(),
    places=PLACES,
)
def test_any_calls_survive_any_cut(
    name: str,
    calls: list[tuple[str, dict[str, Any]]],
    before: str,
    ascii_only: bool,
    places: list[int],
) -> None:
    if name == "llama3":
        before = "." + before  # an object at the beginning would be taken for a call
    text = before + _written(name, calls, ascii_only)
    found = assert_cuts_do_not_matter(lambda: parser(name), text, places)
    assert [(called, json.loads(arguments)) for called, arguments in found.calls] == calls
    assert found.content == before.rstrip()


FRAGMENTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[", "]", ";", ","),
        *(
            CALL,
            OTHER,
            UNKNOWN,
            "{",
            "}",
            '"',
            "\\",
            "\n",
            " ",
            "words",
            "<",
            "<tool",
            "ž",
            "[TOOL",
        ),
    ]
)


@given(
    name=st.sampled_from(sorted(FORMATS)),
    fragments=st.lists(FRAGMENTS, max_size=12),
    max_calls=st.sampled_from([None, 1]),
    places=PLACES,
)
def test_no_word_is_lost_or_told_twice_whatever_the_text(
    name: str, fragments: list[str], max_calls: int | None, places: list[int]
) -> None:
    """Words and broken calls are in the content, in their order; whole calls are not."""
    text = "".join(fragments)
    found = assert_cuts_do_not_matter(lambda: parser(name, max_calls), text, places)
    if not found.calls:
        assert found.content == text
    for word in ("words", "ž", "unknown"):
        assert found.content.count(word) == text.count(word)
    for call, mark in (("f", '"f"'), ("get_weather", '"get_weather"')):
        num_told = sum(called == call for called, _ in found.calls)
        assert num_told + found.content.count(mark) == text.count(mark)


FORCED = (
    '[{"name": "f", "parameters": {"a": 1}}, {"name":"get_weather","parameters":{"city":"Plzeň"}}]'
)


def forced() -> ForcedCallParser:
    return ForcedCallParser(NAMES)


def test_arguments_of_a_forced_call_go_out_as_they_come() -> None:
    reader = forced()
    assert reader.feed('[{"name": "f", "parameters": ') == []
    begun, first = reader.feed('{"a')
    assert (begun, first.text) == (CallBegun("f", 29), '{"a')  # type: ignore[union-attr]
    assert [part.text for part in reader.feed('": 1')] == ['": 1']  # type: ignore[union-attr]
    assert reader.num_calls == 0
    assert [part.text for part in reader.feed("}} ")] == ["}"]  # type: ignore[union-attr]
    assert reader.num_calls == 1


@given(
    calls=st.lists(st.tuples(st.sampled_from(sorted(NAMES)), ARGUMENTS), min_size=1, max_size=3),
    length=st.integers(0, 10_000),
    places=PLACES,
)
def test_forced_calls_survive_any_cut_and_any_end(
    calls: list[tuple[str, dict[str, Any]]], length: int, places: list[int]
) -> None:
    text = json.dumps([{"name": name, "parameters": given} for name, given in calls])
    found = assert_cuts_do_not_matter(forced, text, places)
    assert [(name, json.loads(arguments)) for name, arguments in found.calls] == calls
    assert (found.content, found.num_complete) == ("", len(calls))
    # What a limit leaves is the beginning of the same calls, and no other.
    part = assert_cuts_do_not_matter(forced, text[: length % len(text)], places)
    assert part.num_complete <= len(part.calls) <= len(calls)
    for got, whole in zip(part.calls, found.calls, strict=False):
        assert got[0] == whole[0]
        assert whole[1].startswith(got[1])
    for got, whole in list(zip(part.calls, found.calls, strict=False))[: part.num_complete]:
        assert got == whole


@given(fragments=st.lists(FRAGMENTS, max_size=8), places=PLACES)
def test_text_that_leaves_the_form_of_forced_calls_is_content(
    fragments: list[str], places: list[int]
) -> None:
    text = FORCED[:40] + "".join(fragments)
    found = assert_cuts_do_not_matter(forced, text, places)
    told = "".join(arguments for _, arguments in found.calls) + found.content
    assert told.count("words") == text.count("words")
    behind = "".join(fragments).lstrip()
    found = assert_cuts_do_not_matter(forced, FORCED + behind, places)
    assert (found.content, found.num_complete) == (behind, 2)
    plain = "".join(each for each in fragments if each not in "[{\n ")
    if not plain.startswith(("[", "{")):
        assert assert_cuts_do_not_matter(forced, "x" + plain, places).content == "x" + plain


@pytest.mark.parametrize("name", ["unknown", "\\q", "a\nb", "\\ud800"])
def test_a_forced_call_of_no_declared_tool_is_content(name: str) -> None:
    text = f'[{{"name": "{name}", "parameters": {{}}}}]'
    found = assert_cuts_do_not_matter(forced, text, [5])
    assert (found.content, found.calls) == (text, [])


QWEN = "{% for m in messages %}{{ m.content }}{% endfor %}<tool_call>\n{}\n</tool_call>"


@pytest.mark.row("S-N-009")
@pytest.mark.parametrize(
    ("template", "name"),
    [
        (QWEN, "hermes"),
        ("[TOOL_CALLS] [AVAILABLE_TOOLS]", "mistral"),
        ("<|start_header_id|>ipython<|end_header_id|>", "llama3"),
        ("<|start_header_id|> <|python_tag|>", "llama3"),
        ("<|start_header_id|>assistant<|end_header_id|>", None),
        ("<tool_call><function=f></function></tool_call>", None),
        ("<tool_call>f\n<arg_key>a</arg_key></tool_call>", None),
        ("[TOOL_CALLS]f[ARGS]{}", None),
        ("<|im_start|>", None),
    ],
)
def test_the_template_tells_the_format(template: str, name: str | None) -> None:
    found = detect_format(template)
    assert (found.name if found is not None else None) == name


@pytest.mark.parametrize(
    ("make", "before", "after"),
    [
        (lambda: parser("hermes"), "<tool_call>", "</tool_call>"),
        (lambda: parser("llama3"), "", ""),
        (forced, "[", "]"),
    ],
)
def test_a_long_call_is_read_in_linear_time(
    make: Callable[[], Reader], before: str, after: str
) -> None:
    """Each character is looked at once: looking again for each piece would take minutes here."""
    arguments = json.dumps({"a": "x" * 1_000_000})
    text = f'{before}{{"name": "f", "parameters": {arguments}}}{after}'
    reader = make()
    pieces = [text[i : i + 10] for i in range(0, len(text), 10)]
    begun, *told = [part for piece in pieces for part in reader.feed(piece)]
    assert begun == CallBegun("f", begun.end)
    assert "".join(part.text for part in told if isinstance(part, CallArguments)) == arguments
