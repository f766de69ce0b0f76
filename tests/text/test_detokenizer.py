"""Incremental detokenization against the decoding of all ids at once by the tokenizers library."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioserve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trioserve.text.detokenizer import WindowDetokenizer

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
SAMPLES = [
    "🙂",
    "žluťoučký kůň, ď",
    "日本語のテキスト",
    "🇨🇿🇫🇷",
    "👨‍👩‍👧‍👦 and 👍🏽",
    "नमस्ते",
    "\N{ZERO WIDTH NO-BREAK SPACE}x",
    "tabs\t\r\n  and spaces  ",
]


def pieces(tokenizer: Tokenizer, ids: list[int], *, skip_special_tokens: bool = True) -> list[str]:
    """The text of each token, and of the end."""
    detokenizer = tokenizer.new_detokenizer(skip_special_tokens=skip_special_tokens)
    return [*map(detokenizer.feed, ids), detokenizer.flush()]


def decode(tokenizer: Tokenizer, ids: list[int], *, skip_special_tokens: bool = True) -> str:
    return tokenizer._backend.decode(ids, skip_special_tokens=skip_special_tokens)


@given(data=st.data(), is_skipping=st.booleans())
def test_random_ids_of_the_real_tokenizer_join_to_the_whole(
    smollm: Tokenizer, data: st.DataObject, is_skipping: bool
) -> None:
    ids = data.draw(st.lists(st.integers(0, smollm.vocab_size + 10), max_size=40))
    joined = "".join(pieces(smollm, ids, skip_special_tokens=is_skipping))
    assert joined == decode(smollm, ids, skip_special_tokens=is_skipping)


@given(data=st.data(), is_skipping=st.booleans())
def test_random_bytes_and_added_tokens_join_to_the_whole(
    byte_level: Tokenizer, data: st.DataObject, is_skipping: bool
) -> None:
    ids = data.draw(st.lists(st.integers(0, byte_level.vocab_size - 1), max_size=40))
    joined = "".join(pieces(byte_level, ids, skip_special_tokens=is_skipping))
    assert joined == decode(byte_level, ids, skip_special_tokens=is_skipping)


@given(text=UNICODE)
def test_text_of_any_script_joins_to_the_whole(
    smollm: Tokenizer, byte_level: Tokenizer, text: str
) -> None:
    parts = pieces(byte_level, byte_level.encode(text))
    assert "".join(parts) == text
    assert parts[-1] == ""
    # The default model's vocabulary lacks a few bytes, so not every text survives its encoding.
    ids = smollm.encode(text)
    assert "".join(pieces(smollm, ids)) == decode(smollm, ids)


@pytest.mark.parametrize("text", SAMPLES, ids=lambda text: unicodedata.name(text[0], "control"))
def test_characters_of_many_tokens_are_shown_when_complete(smollm: Tokenizer, text: str) -> None:
    shown = ""
    for piece in pieces(smollm, smollm.encode(text)):
        shown += piece
        assert text.startswith(shown)
    assert shown == text


@given(text=UNICODE)
def test_byte_fallback_text_joins_to_the_whole(sentencepiece: Tokenizer, text: str) -> None:
    ids = sentencepiece.encode(text)
    parts = pieces(sentencepiece, ids)
    assert "".join(parts) == decode(sentencepiece, ids)
    assert sum(part.count("\ufffd") for part in parts) == text.count("\ufffd")


@given(data=st.data(), is_skipping=st.booleans())
def test_random_ids_without_byte_tokens_join_to_the_whole(
    sentencepiece: Tokenizer, data: st.DataObject, is_skipping: bool
) -> None:
    words = [0, 1, 2, *range(259, sentencepiece.vocab_size)]
    ids = data.draw(st.lists(st.sampled_from(words), max_size=20))
    joined = "".join(pieces(sentencepiece, ids, skip_special_tokens=is_skipping))
    assert joined == decode(sentencepiece, ids, skip_special_tokens=is_skipping)


@pytest.mark.parametrize("kind", ["word_piece", "metaspace"])
@given(data=st.data(), is_skipping=st.booleans())
def test_other_decoders_join_to_the_whole(
    kind: str,
    word_piece: Tokenizer,
    metaspace: Tokenizer,
    data: st.DataObject,
    is_skipping: bool,
) -> None:
    tokenizer = {"word_piece": word_piece, "metaspace": metaspace}[kind]
    assert tokenizer._token_bytes is None
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20))
    joined = "".join(pieces(tokenizer, ids, skip_special_tokens=is_skipping))
    assert joined == decode(tokenizer, ids, skip_special_tokens=is_skipping)


def test_only_the_first_space_of_a_text_is_stripped(sentencepiece: Tokenizer) -> None:
    space, two_spaces, word = (
        sentencepiece._backend.token_to_id(token) for token in ("▁", "▁▁", "▁a")
    )
    assert pieces(sentencepiece, [word, word]) == ["a", " a", ""]
    assert pieces(sentencepiece, [space, word]) == ["", " a", ""]
    assert pieces(sentencepiece, [1, two_spaces, word]) == ["", " ", " a", ""]


def test_a_fault_in_a_run_of_byte_tokens_spares_its_good_characters(
    sentencepiece: Tokenizer,
) -> None:
    ids = [3 + byte for byte in b"\xc3\xa9\xff\xf0\x9f"]
    assert pieces(sentencepiece, ids) == ["", "é", "\ufffd", "", "", "\ufffd"]
    assert decode(sentencepiece, ids) == "\ufffd" * 5


@pytest.mark.parametrize("byte", [0x80, 0xBF, 0xC0, 0xF5, 0xFF])
def test_bytes_that_are_never_a_character_are_shown_at_once(
    byte_level: Tokenizer, byte: int
) -> None:
    token_id = next(i for i in range(256) if byte_level._token_bytes.get(i) == bytes([byte]))  # type: ignore[union-attr]
    assert pieces(byte_level, [token_id] * 2000) == ["\ufffd"] * 2000 + [""]


def test_a_run_of_unfinished_characters_never_holds_back_more_than_one(
    byte_level: Tokenizer,
) -> None:
    by_byte = {byte_level._token_bytes.get(i): i for i in range(256)}  # type: ignore[union-attr]
    ids = [by_byte[bytes([byte])] for byte in b"\xf0\x9f\x98" * 500]
    parts = pieces(byte_level, ids)
    assert parts[:6] == ["", "", "", "\ufffd", "", ""]
    assert parts[-1] == "\ufffd"
    assert "".join(parts) == decode(byte_level, ids) == "\ufffd" * 500


def test_an_unfinished_tail_is_one_replacement_character(smollm: Tokenizer) -> None:
    ids = smollm.encode("ok 🦜")
    for num_kept in range(1, len(ids) + 1):
        text = "".join(pieces(smollm, ids[:num_kept]))
        assert text == decode(smollm, ids[:num_kept])
        assert text.count("\ufffd") <= 1


def test_a_special_token_inside_a_character_leaves_no_trace(byte_level: Tokenizer) -> None:
    first, second = byte_level.encode("é", add_special_tokens=False)
    turn = byte_level._backend.token_to_id("<turn>")
    assert pieces(byte_level, [first, turn, second]) == ["", "", "é", ""]
    assert "".join(pieces(byte_level, [turn], skip_special_tokens=False)) == "<turn>"


def test_the_marker_of_a_special_token_written_in_ordinary_tokens_is_kept(
    byte_level: Tokenizer,
) -> None:
    ids = [i for letter in "<turn>" for i in byte_level.encode(letter, add_special_tokens=False)]
    assert "".join(pieces(byte_level, ids)) == "<turn>"


def test_the_window_of_other_decoders_stays_small(make_directory: Callable[..., Path]) -> None:
    tokenizer = Tokenizer.from_directory(make_directory("metaspace"))
    detokenizer: WindowDetokenizer = tokenizer.new_detokenizer()  # type: ignore[assignment]
    tokenizer._backend.add_tokens(["\ufffd"])
    border, odd = (tokenizer._backend.token_to_id(token) for token in ("▁", "\ufffd"))
    shown = ""
    for token_id in [border] * 50 + [odd] * 50:
        shown += detokenizer.feed(token_id)
        assert len(detokenizer._context) + len(detokenizer._pending) <= 2 * detokenizer.MAX_PENDING
    assert shown + detokenizer.flush() == " " * 49 + "\ufffd" * 50
