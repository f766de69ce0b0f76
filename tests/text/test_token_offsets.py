"""Where each token of a prompt begins in its text, for each family of tokenizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import normalizers, processors

from tests.text.conftest import BACKENDS, byte_level_backend
from trioserve.text.tokenizer import Tokenizer
from trioserve.text.tokenizer_files import TokenizerFiles

if TYPE_CHECKING:
    from trioserve.text.token_offsets import OffsetText

TEXTS = [
    "the quick fox",
    "  two  spaces and\ttabs\n\n",
    "naïve Ġ 日本 😀 e\u0301",
    "🇨🇿👩\u200d👩\u200d👧",
    "a<eos>b </s> <turn>",
    " ",
    "",
]


def tokenizer_of(backend: Backend) -> Tokenizer:
    return Tokenizer(TokenizerFiles(backend, {}, frozenset(), None))


def check(placed: OffsetText, tokenizer: Tokenizer, *, is_changed: bool = False) -> None:
    """What holds for all offsets."""
    offsets = list(placed.offsets)
    assert offsets == sorted(offsets)
    assert len(offsets) == len(placed.token_ids)
    assert all(0 <= offset <= len(placed.text) for offset in offsets)
    ends = [*offsets, len(placed.text)][1:]
    for token_id, start, end in zip(placed.token_ids, offsets, ends, strict=True):
        token = tokenizer.token_text(token_id)
        if start == end or token.startswith("bytes:"):
            continue
        shown = placed.text[start:end]
        if not is_changed:
            assert shown.startswith(token)
        assert shown.strip().startswith(token.strip()) or is_changed


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_starts_with_each_token_at_its_offset(
    byte_level: Tokenizer, smollm: Tokenizer, text: str
) -> None:
    for tokenizer in (byte_level, smollm):
        placed = tokenizer.encode_with_offsets(text)
        assert placed.text == text
        assert list(placed.token_ids) == tokenizer.encode(text)
        check(placed, tokenizer)


@given(text=st.text(alphabet="ab \n<>eos日😀\u0301ď", max_size=40))
def test_it_does_so_for_any_text(text: str) -> None:
    tokenizer = tokenizer_of(byte_level_backend())
    placed = tokenizer.encode_with_offsets(text)
    check(placed, tokenizer)
    # Every byte is a token here, so the offsets of the ones without BOS are known.
    expected = [index for index, char in enumerate(text) for _ in char.encode()]
    if "<eos>" not in text and "日" not in text:
        assert list(placed.offsets) == [0, *expected]


def test_bos_has_no_width(byte_level: Tokenizer, sentencepiece: Tokenizer) -> None:
    assert byte_level.encode_with_offsets("ab").offsets == (0, 0, 1)
    # The space that this family writes before the first word is not in the text.
    placed = sentencepiece.encode_with_offsets("a the")
    tokens = [sentencepiece.token_text(token_id) for token_id in placed.token_ids]
    assert tokens == ["<s>", " a", " ", "t", "he"]
    assert placed.offsets == (0, 0, 1, 2, 3)


def test_spaces_belong_to_their_word_though_the_tokenizers_spans_leave_them_out() -> None:
    backend = byte_level_backend()
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer = tokenizer_of(backend)
    placed = tokenizer.encode_with_offsets("a  b ")
    assert placed.offsets == (0, 1, 2, 3, 4)


def test_where_the_tokenizer_changes_the_text_its_spans_are_used() -> None:
    backend = byte_level_backend()
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer = tokenizer_of(backend)
    text = "ABe\u0301 日Cd" * 3
    placed = tokenizer.encode_with_offsets(text)
    check(placed, tokenizer, is_changed=True)
    shown = [tokenizer.token_text(token_id) for token_id in placed.token_ids]
    for letter in "abcd":
        found = [offset for offset, own in zip(placed.offsets, shown, strict=True) if own == letter]
        assert found == [index for index, char in enumerate(text.lower()) if char == letter]


@pytest.mark.parametrize("kind", BACKENDS)
def test_decoded_ids_begin_where_their_text_does(kind: str) -> None:
    tokenizer = tokenizer_of(BACKENDS[kind]())
    ids = list(range(min(tokenizer.vocab_size, 300)))
    for skips in (True, False):
        placed = tokenizer.decode_with_offsets(ids, skip_special_tokens=skips)
        assert placed.text == tokenizer.decode(ids, skip_special_tokens=skips)
        assert list(placed.offsets) == sorted(placed.offsets)
        assert all(0 <= offset <= len(placed.text) for offset in placed.offsets)


def test_decoded_bytes_share_the_character_that_they_make(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("a😀b", add_special_tokens=False)
    assert byte_level.decode_with_offsets(ids).offsets == (0, 1, 1, 1, 1, 2)
    # A character that stays unfinished is one U+FFFD, and what follows begins behind it.
    placed = byte_level.decode_with_offsets([ids[0], *ids[1:3], ids[5]])
    assert placed.text == "a\ufffdb"
    assert placed.offsets == (0, 1, 1, 2)
    special = byte_level.encode("<eos>", add_special_tokens=False)
    placed = byte_level.decode_with_offsets([ids[0], *special, ids[5]])
    assert (placed.text, placed.offsets) == ("ab", (0, 1, 1))
    placed = byte_level.decode_with_offsets([ids[0], *special, ids[5]], skip_special_tokens=False)
    assert (placed.text, placed.offsets) == ("a<eos>b", (0, 1, 6))


def test_a_part_keeps_all_tokens_and_moves_those_outside_to_its_ends(
    byte_level: Tokenizer,
) -> None:
    placed = byte_level.encode_with_offsets("abcdef").part(2, 3)
    assert placed.text == "cde"
    assert placed.offsets == (0, 0, 0, 0, 1, 2, 3)
