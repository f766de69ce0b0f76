"""From tokens to visible text: stops across tokens, tails, and where each token's text is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioserve.core import StopParams
from trioserve.text.assembler import Assembled, TextAssembler

if TYPE_CHECKING:
    from trioserve.text.tokenizer import Tokenizer


NO_STOP = StopParams()


def assemble(
    tokenizer: Tokenizer,
    ids: list[int],
    stop: StopParams = NO_STOP,
    *,
    is_skipping: bool = True,
) -> tuple[list[str], str | None]:
    """The text that each token shows, then that of the end; and the stop."""
    assembler = TextAssembler(tokenizer, stop, skips_special_tokens=is_skipping)
    shown = []
    for token_id in ids:
        assembled = assembler.feed(token_id)
        shown.append(assembled.text)
        if assembled.matched_stop is not None:
            assert assembler.flush() == ""
            return shown, assembled.matched_stop
    return [*shown, assembler.flush()], None


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


@settings(deadline=None)
@given(
    text=st.text("ab🙂ď\n", max_size=40),
    stops=st.lists(st.text("ab🙂ď\n", min_size=1, max_size=4), max_size=3).map(tuple),
)
def test_the_text_ends_before_the_first_stop_and_is_whole_without_one(
    smollm: Tokenizer, text: str, stops: tuple[str, ...]
) -> None:
    pieces, stop = assemble(smollm, smollm.encode(text), StopParams(stops))
    shown = "".join(pieces)
    if stop is None:
        assert shown == text
        assert not any(candidate in text for candidate in stops)
    else:
        assert text.startswith(shown + stop)
        assert not any(candidate in shown for candidate in stops)


@pytest.mark.row("S-C-014")
def test_a_stop_across_token_borders_ends_the_text_before_it(smollm: Tokenizer) -> None:
    ids = smollm.encode("The answer is 42.\n\nQuestion: what?")
    pieces, stop = assemble(smollm, ids, StopParams(("\n\nQ",)))
    assert ("".join(pieces), stop) == ("The answer is 42.", "\n\nQ")
    assert smollm.decode(ids[: len(pieces)]) == "The answer is 42.\n\nQuestion"


@pytest.mark.row("S-C-035")
def test_a_kept_stop_is_the_end_of_the_text(smollm: Tokenizer) -> None:
    ids = smollm.encode("The answer is 42.\n\nQuestion: what?")
    for stop in (
        StopParams(("\n\nQ",), is_kept=True),
        StopParams(regexes=(r"\s+Q",), is_kept=True),
    ):
        pieces, _ = assemble(smollm, ids, stop)
        assert "".join(pieces) == "The answer is 42.\n\nQ"


@pytest.mark.case(40)
def test_text_held_back_for_a_stop_appears_when_the_choice_ends(byte_level: Tokenizer) -> None:
    ids = encode(byte_level, "Bye.\nUse")
    for stop in (StopParams(("\nUser:",)), StopParams(regexes=(r"\n\w+:",))):
        pieces, _ = assemble(byte_level, ids, stop)
        assert pieces == [*"Bye.", "", "", "", "", "\nUse"]


@pytest.mark.case(65)
def test_a_choice_cut_inside_a_character_keeps_the_complete_ones(byte_level: Tokenizer) -> None:
    ids = encode(byte_level, "aé🙂")[:-1]
    for stop in (StopParams(), StopParams(("🙂",)), StopParams(regexes=("🙂",))):
        pieces, _ = assemble(byte_level, ids, stop)
        assert "".join(pieces[:-1]) == "aé"
        assert pieces[-1] == "\ufffd"


def test_held_text_comes_before_an_unfinished_character(byte_level: Tokenizer) -> None:
    pieces, _ = assemble(byte_level, encode(byte_level, "xaé")[:-1], StopParams(("ab",)))
    assert pieces == ["x", "", "", "a\ufffd"]


@pytest.mark.row("S-C-034")
@pytest.mark.case(67)
def test_special_tokens_are_shown_only_when_asked_for(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("hi<turn>")
    assert assemble(byte_level, ids)[0] == ["", "h", "i", "", ""]
    shown, _ = assemble(byte_level, ids, is_skipping=False)
    assert shown == ["<bos>", "h", "i", "<turn>", ""]


@pytest.mark.case(67)
def test_the_marker_written_in_ordinary_tokens_is_text_and_can_be_a_stop(
    byte_level: Tokenizer,
) -> None:
    ids = [token_id for letter in "a<turn>" for token_id in encode(byte_level, letter)]
    assert "".join(assemble(byte_level, ids)[0]) == "a<turn>"
    assert assemble(byte_level, ids, StopParams(("<turn>",)))[1] == "<turn>"


def test_a_skipped_special_token_does_not_interrupt_a_stop(byte_level: Tokenizer) -> None:
    ids = encode(byte_level, "xS<turn>T")
    assert assemble(byte_level, ids, StopParams(("ST",)))[1] == "ST"


@pytest.mark.row("S-C-037")
@pytest.mark.case(61)
@pytest.mark.parametrize("kind", ["string", "pattern"])
def test_stops_count_from_the_token_on_that_is_the_least(byte_level: Tokenizer, kind: str) -> None:
    ids = encode(byte_level, "ab ab.")

    def stop(min_tokens: int) -> StopParams:
        if kind == "string":
            return StopParams(("ab",), min_tokens=min_tokens)
        return StopParams(regexes=("ab",), min_tokens=min_tokens)

    assert "".join(assemble(byte_level, ids, stop(2))[0]) == ""
    for min_tokens in (3, 4, 5):  # the second begins early
        assert "".join(assemble(byte_level, ids, stop(min_tokens))[0]) == "ab "
    assert assemble(byte_level, ids, stop(6)) == (["", "ab", " ", "", "ab", ".", ""], None)


def test_the_last_token_of_a_choice_has_no_text_unless_stops_are_kept(
    byte_level: Tokenizer,
) -> None:
    (turn,) = encode(byte_level, "<turn>")
    (bang,) = encode(byte_level, "!")
    for token_id, is_skipping, is_kept, text in [
        (bang, True, False, "x"),
        (bang, True, True, "x!"),
        (turn, True, True, "x"),
        (turn, False, True, "x<turn>"),
        (turn, False, False, "x"),
    ]:
        stop = StopParams(("xyz",), is_kept=is_kept)
        assembler = TextAssembler(byte_level, stop, skips_special_tokens=is_skipping)
        assert assembler.feed(*encode(byte_level, "x")).text == ""
        assert assembler.feed_last(token_id) == Assembled(text, None, 1, len(text))
        assert assembler.flush() == ""


def test_an_unfinished_character_comes_before_the_last_token(byte_level: Tokenizer) -> None:
    (turn,) = encode(byte_level, "<turn>")
    for is_kept, text in ((True, "\ufffd<turn>"), (False, "\ufffd")):
        stop = StopParams(is_kept=is_kept)
        assembler = TextAssembler(byte_level, stop, skips_special_tokens=False)
        assembler.feed(encode(byte_level, "é")[0])
        assert assembler.feed_last(turn) == Assembled(text, None, 1, len(text))


def test_stops_are_not_looked_for_in_the_last_tokens_text(byte_level: Tokenizer) -> None:
    assembler = TextAssembler(byte_level, StopParams(("ab",), is_kept=True))
    first, last = encode(byte_level, "ab")
    assembler.feed(first)
    assert assembler.feed_last(last) == Assembled("ab", None, 1, 2)


def test_tokens_that_share_a_character_start_at_it(byte_level: Tokenizer) -> None:
    assembler = TextAssembler(byte_level, StopParams())
    spans = [
        (assembled.text_start, assembled.text_end)
        for assembled in map(assembler.feed, byte_level.encode("aé🙂<turn>b"))
    ]
    assert spans == [(0, 0), (0, 1), *[(1, 2)] * 2, *[(2, 3)] * 4, (3, 3), (3, 4)]


def reference_spans(all_bytes: list[bytes]) -> list[tuple[int, int]]:
    """Where the character of each byte begins and ends, by decoding every prefix of them all.

    A prefix that ends inside a character, or in no character, has one U+FFFD for its end.
    """
    lengths = [
        len(b"".join(all_bytes[:end]).decode(errors="replace")) for end in range(len(all_bytes) + 1)
    ]
    return [(length - 1, length) for length in lengths[1:]]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([*map(bytes, zip("aé日🙂".encode(), strict=False))]),
            st.sampled_from(
                [b"\xc3", b"\xe0", b"\x80", b"\xa0", b"\xff", b"\xf4", b"\x90", b"\xed"]
            ),
        ),
        max_size=12,
    )
)
def test_each_token_starts_where_its_own_bytes_begin(
    byte_level: Tokenizer, all_bytes: list[bytes]
) -> None:
    by_byte = {byte_level._token_bytes.get(i): i for i in range(256)}  # type: ignore[union-attr]
    assembler = TextAssembler(byte_level, StopParams())
    spans = []
    for one in all_bytes:
        assembled = assembler.feed(by_byte[one])
        spans.append((assembled.text_start, assembled.text_end))
    assert spans == reference_spans(all_bytes)


def test_no_tokens_give_no_text(smollm: Tokenizer) -> None:
    assert assemble(smollm, [], StopParams(("x",))) == ([""], None)


def test_feeding_after_the_stop_is_our_own_mistake(byte_level: Tokenizer) -> None:
    assembler = TextAssembler(byte_level, StopParams(("b",)))
    for token_id in encode(byte_level, "ab"):
        assembler.feed(token_id)
    with pytest.raises(AssertionError, match="after the text had ended"):
        assembler.feed(0)


def test_a_special_token_that_is_to_be_shown_is_shown_and_no_other(byte_level: Tokenizer) -> None:
    eos, turn = byte_level.encode("<eos><turn>", add_special_tokens=False)
    assert byte_level.special_ids_of(["<turn>", "a", "no such token"]) == {turn}
    ids = [*byte_level.encode("a", add_special_tokens=False), turn, eos]
    for kept, last, text in (
        ({turn}, None, "a<turn>"),
        ({turn}, turn, "a<turn><turn>"),
        (set(), turn, "a"),
    ):
        assembler = TextAssembler(byte_level, StopParams(is_kept=True), shown_ids=frozenset(kept))
        shown = "".join(assembler.feed(token_id).text for token_id in ids)
        shown += assembler.flush() if last is None else assembler.feed_last(last).text
        assert shown == text
