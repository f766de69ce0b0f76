"""The least tokens of a text: never more than it has, and not so few that it is of no use."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from trioserve.testing.fake_text import byte_tokenizer
from trioserve.text.token_bytes import BYTE_OF_LETTER
from trioserve.text.token_span import TokenSpan

if TYPE_CHECKING:
    from collections.abc import Callable

    from trioserve.text.tokenizer import Tokenizer

TEXTS = st.text(max_size=60) | st.text(alphabet="\x04\x06\x00 \n\u0301a<>eos日😀ﬃ한", max_size=60)


def byte_level(missing: frozenset[int] = frozenset()) -> Backend:
    """Bytes and three longer tokens."""
    vocabulary = {
        letter: byte for letter, byte in BYTE_OF_LETTER.items() if byte not in missing
    } | {"Ġa": 300, "aa": 301, "Ġaaa": 302}
    merges = [("Ġ", "a"), ("a", "a"), ("Ġa", "aa")]
    backend = Backend(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return backend


def num_tokens(backend: Backend, text: str) -> int:
    return len(backend.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("name", ["smollm", "byte_level", "sentencepiece"])
def test_real_kinds_of_tokenizer_have_a_bound(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    assert tokenizer.least_tokens("a" * 1_000_000) > 10_000
    assert tokenizer.least_tokens("") == 0

    @settings(deadline=None)
    @given(TEXTS)
    def check(text: str) -> None:
        assert tokenizer.least_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False))

    check()


def test_the_bound_is_reached_by_the_longest_token() -> None:
    span = TokenSpan.from_backend(byte_level())
    assert span == TokenSpan(max_chars=4, unknown_chars="")
    assert span.least_tokens(" aaa" * 100) == num_tokens(byte_level(), " aaa" * 100) == 100
    assert span.least_tokens(" aaa" * 100 + "b") == 101
    # An added token can be the longest one.
    assert byte_tokenizer().least_tokens("<eos>" * 100) == 100


def test_control_characters_without_a_token_are_not_counted() -> None:
    """As in the default model, whose vocabulary has no byte 4: they leave nothing."""
    backend = byte_level(frozenset({4, 6, 0xF1, 0xC0}))
    span = TokenSpan.from_backend(backend)
    assert span is not None
    assert span.unknown_chars == "\x04\x06"
    text = "\x04" * 10_000 + "\x06aa\x04aa"
    assert num_tokens(backend, text) == 2
    assert span.least_tokens(text) == 1


@pytest.mark.parametrize("missing", [{ord("z")}, {ord("~")}, {0x80}, {0xBF}])
def test_there_is_no_bound_where_ordinary_text_can_vanish(missing: set[int]) -> None:
    assert TokenSpan.from_backend(byte_level(frozenset(missing))) is None


@pytest.mark.parametrize(
    ("normalizer", "max_chars"),
    [
        (normalizers.NFC(), 16),
        (normalizers.NFKC(), 16),
        (normalizers.NFD(), 4),
        (normalizers.Prepend("▁"), 4),
        (normalizers.Replace(" ", "▁"), 4),
        (normalizers.Replace("a", "bc"), 4),
        (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.NFC()]), 16),
        # Each of these can make any amount of text disappear.
        (normalizers.Replace("ab", "c"), None),
        (normalizers.Replace("a", ""), None),
        (normalizers.Replace(Regex(" +"), " "), None),
        (normalizers.Strip(), None),
        (normalizers.StripAccents(), None),
        (normalizers.Sequence([normalizers.NFC(), normalizers.Nmt()]), None),
    ],
)
def test_a_normalizer_widens_the_bound_or_ends_it(
    normalizer: normalizers.Normalizer, max_chars: int | None
) -> None:
    backend = byte_level()
    backend.normalizer = normalizer
    span = TokenSpan.from_backend(backend)
    assert (span and span.max_chars) == max_chars
    if span is None:
        return

    @settings(deadline=None, max_examples=30)
    @given(TEXTS)
    def check(text: str) -> None:
        assert span.least_tokens(text) <= num_tokens(backend, text)

    check()


def test_composition_takes_at_most_four_characters_for_one() -> None:
    """What the factor for NFC stands on, for every character there is."""
    characters = map(chr, range(0x110000))
    assert max(len(unicodedata.normalize("NFD", char)) for char in characters) == 4


@pytest.mark.parametrize(
    "spoil",
    [
        lambda b: setattr(b, "pre_tokenizer", None),
        lambda b: setattr(b, "pre_tokenizer", pre_tokenizers.Whitespace()),
        lambda b: setattr(
            b,
            "pre_tokenizer",
            pre_tokenizers.Sequence(
                [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()]
            ),
        ),
        lambda b: b.add_tokens([AddedToken("<mask>", lstrip=True)]),
        lambda b: b.add_tokens([AddedToken("<end>", rstrip=True)]),
        lambda b: b.enable_truncation(8),
        lambda b: setattr(b, "model", models.WordLevel({"a": 0}, unk_token="a")),
    ],
    ids=["no bytes", "whitespace", "removed", "lstrip", "rstrip", "truncation", "words"],
)
def test_what_can_swallow_text_has_no_bound(spoil: Callable[[Backend], object]) -> None:
    backend = byte_level()
    assert TokenSpan.from_backend(backend) is not None
    spoil(backend)
    assert TokenSpan.from_backend(backend) is None


def test_byte_fallback_needs_every_byte(sentencepiece: Tokenizer, word_piece: Tokenizer) -> None:
    assert sentencepiece.least_tokens("日" * 600) >= 100
    assert word_piece.least_tokens("a" * 1_000_000) == 0
    for byte, has_bound in ((None, True), (0x04, True), (0x7A, False), (0xE6, False)):
        pieces = [f"<0x{other:02X}>" for other in range(256) if other != byte]
        vocabulary = {piece: rank for rank, piece in enumerate(["<unk>", *pieces])}
        model = models.BPE(
            vocab=vocabulary, merges=[], unk_token="<unk>", fuse_unk=True, byte_fallback=True
        )
        backend = Backend(model)
        # One byte of a character is enough to lose it: here whole lines become one <unk>.
        assert (num_tokens(backend, "日" * 100) == 1) == (byte == 0xE6)
        assert (TokenSpan.from_backend(backend) is not None) == has_bound
