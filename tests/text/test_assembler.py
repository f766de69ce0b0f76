"""From tokens to visible text: stops across token borders, tails, grouping without effect."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioserve.text.assembler import Assembled, TextAssembler

if TYPE_CHECKING:
    from trioserve.text.tokenizer import Tokenizer


def assemble(
    tokenizer: Tokenizer, groups: list[list[int]], stops: tuple[str, ...]
) -> tuple[str, str | None, int]:
    """The whole text, the stop and the number of tokens used, fed group by group."""
    assembler = TextAssembler(tokenizer, stops)
    text, num_used = "", 0
    for group in groups:
        assembled = assembler.feed(group)
        text += assembled.text
        num_used += assembled.num_used_tokens
        if assembled.matched_stop is not None:
            return text + assembler.flush(), assembled.matched_stop, num_used
    return text + assembler.flush(), None, num_used


@given(
    text=st.text("ab🙂ď\n", max_size=40),
    stops=st.lists(st.text("ab🙂ď\n", min_size=1, max_size=4), max_size=3).map(tuple),
    cuts=st.lists(st.integers(0, 100), max_size=6),
)
def test_how_tokens_are_grouped_changes_nothing(
    smollm: Tokenizer, text: str, stops: tuple[str, ...], cuts: list[int]
) -> None:
    ids = smollm.encode(text)
    borders = sorted({0, len(ids), *(min(cut, len(ids)) for cut in cuts)})
    groups = [ids[start:end] for start, end in itertools.pairwise(borders)]
    one_by_one = assemble(smollm, [[token_id] for token_id in ids], stops)
    assert assemble(smollm, groups, stops) == one_by_one
    assert assemble(smollm, [ids], stops) == one_by_one
    shown, stop, num_used = one_by_one
    if stop is None:
        assert shown == text
        assert num_used == len(ids)
        assert not any(candidate in text for candidate in stops)
    else:
        assert text.startswith(shown + stop)
        assert not any(candidate in shown for candidate in stops)


def test_a_stop_across_token_borders_ends_the_text_before_it(smollm: Tokenizer) -> None:
    ids = smollm.encode("The answer is 42.\n\nQuestion: what?")
    assembler = TextAssembler(smollm, ("\n\nQ",))
    assembled = assembler.feed(ids)
    assert assembled.text == "The answer is 42."
    assert assembled.matched_stop == "\n\nQ"
    assert smollm.decode(ids[: assembled.num_used_tokens]) == "The answer is 42.\n\nQuestion"
    assert assembler.flush() == ""


def test_tokens_after_the_stop_in_the_same_step_are_not_used(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("one;two;three", add_special_tokens=False)
    assert TextAssembler(byte_level, (";",)).feed(ids) == Assembled("one", ";", 4)


def test_text_held_back_for_a_stop_appears_when_the_choice_ends(byte_level: Tokenizer) -> None:
    assembler = TextAssembler(byte_level, ("\nUser:",))
    ids = byte_level.encode("Bye.\nUse", add_special_tokens=False)
    assert assembler.feed(ids).text == "Bye."
    assert assembler.flush() == "\nUse"


def test_a_choice_cut_inside_a_character_keeps_the_complete_ones(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("aé🙂", add_special_tokens=False)[:-1]
    for stops in ((), ("🙂",)):
        assembler = TextAssembler(byte_level, stops)
        assert assembler.feed(ids).text == "aé"
        assert assembler.flush() == "\ufffd"


def test_held_text_comes_before_an_unfinished_character(byte_level: Tokenizer) -> None:
    assembler = TextAssembler(byte_level, ("ab",))
    assert assembler.feed(byte_level.encode("xaé", add_special_tokens=False)[:-1]).text == "x"
    assert assembler.flush() == "a\ufffd"


def test_special_tokens_are_shown_only_when_asked_for(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("hi<turn>")
    assert TextAssembler(byte_level, ()).feed(ids).text == "hi"
    shown = TextAssembler(byte_level, (), skip_special_tokens=False).feed(ids)
    assert shown.text == "<bos>hi<turn>"


def test_a_skipped_special_token_does_not_interrupt_a_stop(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("xS<turn>T", add_special_tokens=False)
    assert TextAssembler(byte_level, ("ST",)).feed(ids).matched_stop == "ST"


def test_no_tokens_give_no_text(smollm: Tokenizer) -> None:
    assembler = TextAssembler(smollm, ("x",))
    assert assembler.feed([]) == Assembled("", None, 0)
    assert assembler.flush() == ""


def test_feeding_after_the_stop_is_our_own_mistake(byte_level: Tokenizer) -> None:
    assembler = TextAssembler(byte_level, ("b",))
    assembler.feed(byte_level.encode("abc", add_special_tokens=False))
    with pytest.raises(AssertionError, match="after the stop 'b'"):
        assembler.feed([0])
