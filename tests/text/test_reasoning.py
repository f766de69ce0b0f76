"""The block at the beginning of a reply, and the reader that puts block and calls together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.reply_kit import PLACES, Read, assert_cuts_do_not_matter, read
from trioserve.text.reasoning import REASONING_FORMATS, Block
from trioserve.text.reply_reader import ReplyReader, ReplySyntax, read_whole
from trioserve.text.tool_calls.formats import FORMATS

QWEN, DEEPSEEK = REASONING_FORMATS["qwen3"], REASONING_FORMATS["deepseek-r1"]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def reader(
    *,
    is_open: bool = False,
    separates: bool = True,
    with_tools: bool = False,
    is_forced: bool = False,
) -> ReplyReader:
    syntax = ReplySyntax(
        reasoning=QWEN,
        block=Block.OPEN if is_open else Block.UNDECIDED,
        separates_reasoning=separates,
        calls=FORMATS["hermes"] if with_tools else None,
        is_forced=is_forced,
        tool_names=frozenset({"f"}),
    )
    return syntax.new_reader()


@pytest.mark.row("S-N-010")
@pytest.mark.parametrize(
    ("is_open", "text", "reasoning", "content"),
    [
        (False, "<think>\nI think.\n</think>\n\nI say.", "I think.", "I say."),
        (False, " <think>a</think>b", "a", "b"),
        (False, "<think>\n\n</think>\n\nI say.\n", "", "I say.\n"),
        (False, "I say <think>a</think>.", "", "I say <think>a</think>."),
        (False, "</think>I say.", "", "</think>I say."),
        (False, " \n", "", " \n"),
        (False, "<thin", "", "<thin"),
        (False, "<think>", "", ""),
        (False, "<think>cut </thi", "cut </thi", ""),
        (False, "<think>a</think>b</think><think>c", "a", "b</think><think>c"),
        (False, "<think>a</ </think>b", "a</", "b"),
        (True, "I think.\n</think>\n\nI say.", "I think.", "I say."),
        # A model that opens the block itself, though it is open.
        (True, "<think>\nI think.\n</think>I say.", "I think.", "I say."),
        (True, "</think>I say.", "", "I say."),
        (True, "cut ", "cut ", ""),
        (True, "", "", ""),
    ],
)
def test_the_block_is_reasoning_and_the_rest_content(
    is_open: bool, text: str, reasoning: str, content: str
) -> None:
    found = assert_cuts_do_not_matter(lambda: reader(is_open=is_open), text, [1, 5])
    assert (found.reasoning, found.content) == (reasoning, content)


@pytest.mark.parametrize(
    ("prompt", "qwen", "deepseek"),
    [
        ("<|im_start|>assistant\n", Block.UNDECIDED, Block.OPEN),
        ("<|im_start|>assistant\n<think>\n", Block.OPEN, Block.OPEN),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", Block.NONE, Block.NONE),
        ("<think>", Block.OPEN, Block.OPEN),
        ("What does <think> mean?", Block.UNDECIDED, Block.OPEN),
    ],
)
def test_the_prompt_tells_what_is_known_of_the_block(
    prompt: str, qwen: Block, deepseek: Block
) -> None:
    assert (QWEN.block_after(prompt), DEEPSEEK.block_after(prompt)) == (qwen, deepseek)


@pytest.mark.parametrize(
    ("words", "qwen", "deepseek"),
    [
        ("Some", Block.NONE, Block.OPEN),
        ("<think>Some", Block.OPEN, Block.OPEN),
        ("<think>Some</think>And", Block.NONE, Block.NONE),
        ("Some</think>", Block.NONE, Block.NONE),
    ],
)
def test_words_that_a_reply_goes_on_with_tell_it_too(
    words: str, qwen: Block, deepseek: Block
) -> None:
    assert (QWEN.block_within(words), DEEPSEEK.block_within(words)) == (qwen, deepseek)


FRAGMENTS = st.sampled_from(
    ["<think>", "</think>", "<", "</", "think>", " ", "\n", "a", "ž", CALL, "<tool_call>", "{"]
)
TEXTS = st.lists(FRAGMENTS, max_size=10).map("".join)


@given(text=TEXTS, is_open=st.booleans(), places=PLACES)
def test_a_block_that_is_not_separated_leaves_the_text_as_it_is(
    text: str, is_open: bool, places: list[int]
) -> None:
    found = assert_cuts_do_not_matter(
        lambda: reader(is_open=is_open, separates=False), text, places
    )
    assert found == Read(content=text)


@given(text=TEXTS, is_open=st.booleans(), with_tools=st.booleans(), places=PLACES)
def test_no_word_is_lost_or_told_twice(
    text: str, is_open: bool, with_tools: bool, places: list[int]
) -> None:
    found = assert_cuts_do_not_matter(
        lambda: reader(is_open=is_open, with_tools=with_tools), text, places
    )
    for word in ("ž", "a"):
        num_told = found.content.count(word) + found.reasoning.count(word)
        in_calls = CALL.count(word) if word == "a" else 0
        assert num_told + in_calls * len(found.calls) == text.count(word)


def test_calls_are_looked_for_behind_the_block_alone() -> None:
    thought = f"<think>I could {CALL}</think>"
    for separates, reasoning, content in (
        (True, f"I could {CALL}", "Well."),
        (False, "", f"{thought}Well."),
    ):
        found = assert_cuts_do_not_matter(
            lambda separates=separates: reader(separates=separates, with_tools=True),
            f"{thought}Well.\n{CALL}",
            [9, 30],
        )
        assert (found.reasoning, found.content) == (reasoning, content)
        assert found.calls == [["f", '{"a": 1}']]


def test_forced_calls_come_behind_the_block() -> None:
    text = '<think>Hm.</think>\n\n[{"name": "f", "parameters": {"a": 1}}]'
    found = assert_cuts_do_not_matter(lambda: reader(is_forced=True), text, [3, 20])
    assert found == Read("", "Hm.", [["f", '{"a": 1}']])


def test_the_end_of_the_block_is_known_with_its_last_character() -> None:
    one = reader()
    assert one.block is Block.UNDECIDED
    one.feed("<think>a</think")
    assert one.block is Block.OPEN
    one.feed("> b")
    assert (one.block, one.block_end) == (Block.CLOSED, len("<think>a</think>"))
    other = reader()
    other.feed("b")
    assert other.block is Block.NONE


def test_a_whole_reply_is_what_its_parts_join_to() -> None:
    text = f"<think>a</think>b {CALL}"
    whole = read_whole(reader(with_tools=True), text)
    joined = read(reader(with_tools=True), text)
    assert (whole.content, whole.reasoning) == (joined.content, joined.reasoning) == ("b", "a")
    assert [[call.name, call.arguments] for call in whole.calls] == joined.calls
    assert whole.num_complete_calls == 1
