"""What a choice gives its reader: text and tokens that are the same however they are taken."""

import codecs
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.text.conftest import byte_level_backend
from trioserve.core import Finish, FinishReason, SamplingParams, SequenceId, StopParams
from trioserve.engine.choice import Choice, Prompt
from trioserve.engine.request import Delta, Generation, Token
from trioserve.text.regex_stops import SearchBudget
from trioserve.text.tokenizer import Tokenizer
from trioserve.text.tokenizer_files import TokenizerFiles


@cache
def tokenizer() -> Tokenizer:
    """A token a byte, some of several, and special ones."""
    return Tokenizer(
        TokenizerFiles(
            backend=byte_level_backend(),
            named_tokens={"eos_token": "<eos>"},
            eos_token_ids=frozenset(),
            chat_template=None,
        )
    )


def ids_of(text: str) -> list[int]:
    return tokenizer().encode(text, add_special_tokens=False)


(EOS,) = ids_of("<eos>")
(TURN,) = ids_of("<turn>")
(BANG,) = ids_of("!")


def new_choice(stop: StopParams, max_tokens: int = 1000, *, is_skipping: bool = True) -> Choice:
    generation = Generation(
        (1,), max_tokens, SamplingParams(), stop, skips_special_tokens=is_skipping
    )
    prompt = Prompt.of(generation, tokenizer(), SearchBudget())
    return Choice.of(0, prompt, SequenceId(1))


def commit(choice: Choice, token_id: int) -> Finish | None:
    """As the batch does, without a batch."""
    choice.sequence.num_in_flight += 1
    finish = choice.commit(token_id, None)
    if finish is not None:
        choice.end(finish)
    return finish


def play(
    choice: Choice, ids: list[int], is_taken_after: Callable[[int], bool]
) -> tuple[list[Delta], list[int]]:
    """Commit until the choice ends, taking now and then; the deltas and the tokens committed."""
    deltas = []
    for index, token_id in enumerate(ids):
        finish = commit(choice, token_id)
        if finish is not None or is_taken_after(index):
            deltas.append(choice.take())
        if finish is not None:
            return deltas, ids[: index + 1]
    choice.end(Finish(FinishReason.ABORT))
    return [*deltas, choice.take()], ids


def joined(deltas: list[Delta]) -> tuple[str, list[Token], int, Finish | None]:
    return (
        "".join(delta.text for delta in deltas),
        [token for delta in deltas for token in delta.tokens],
        sum(delta.num_tokens for delta in deltas),
        deltas[-1].finish,
    )


def bytes_of(token_id: int, *, is_skipping: bool = True) -> bytes:
    if is_skipping and token_id in tokenizer().special_ids:
        return b""
    table = tokenizer()._token_bytes
    assert table is not None
    return table.get(token_id)


def num_chars(data: bytes) -> int:
    return len(data.decode(errors="replace"))


BYTE_IDS = {bytes_of(token_id): token_id for token_id in range(256)}
pieces = st.one_of(
    st.text("ab \n", min_size=1, max_size=3).map(ids_of),
    st.sampled_from(["é", "日", "🙂", "👍🏽", "日本", "naïve Ġ", "<eos>", "<turn>", "!"]).map(
        ids_of
    ),
    st.sampled_from(["🙂", "日"]).map(lambda text: ids_of(text)[:-1]),
    st.sampled_from([b"\xff", b"\x80", b"\xc3"]).map(lambda byte: [BYTE_IDS[byte]]),
)
token_lists = st.lists(pieces, max_size=12).map(lambda parts: [i for part in parts for i in part])
stops = st.builds(
    StopParams,
    strings=st.lists(st.sampled_from(["ab", "b\n", "é", "🙂", "aa", "\ufffd"]), max_size=2).map(
        tuple
    ),
    token_ids=st.sampled_from([frozenset(), frozenset({TURN, BANG})]),
    is_eos_ignored=st.booleans(),
    regexes=st.lists(
        st.sampled_from([r"a+b", r"\s\s", r"(?<=a)b", r".\n", r"日.*a"]), max_size=2
    ).map(tuple),
    is_kept=st.booleans(),
    min_tokens=st.sampled_from([0, 0, 1, 3, 6]),
)


@pytest.mark.case(29, 62)
@settings(max_examples=400, deadline=None)
@given(
    ids=token_lists,
    stop=stops,
    is_skipping=st.booleans(),
    max_tokens=st.integers(1, 40),
    taken=st.sets(st.integers(0, 40)),
)
@example(ids_of("xab"), StopParams(("ab",)), True, 9, {0, 1})
@example([*ids_of("🙂")[:3], EOS], StopParams(), True, 9, {0, 1, 2})
@example([*ids_of("🙂")[:3], EOS], StopParams(is_kept=True), False, 9, {0, 1, 2})
@example([*ids_of("é")[:1], TURN, *ids_of("é")[1:]], StopParams(), True, 9, {0, 1, 2})
def test_text_and_tokens_are_the_same_however_they_are_taken(
    ids: list[int], stop: StopParams, is_skipping: bool, max_tokens: int, taken: set[int]
) -> None:
    def choice() -> Choice:
        return new_choice(stop, max_tokens, is_skipping=is_skipping)

    whole, used = play(choice(), ids, lambda _: False)
    deltas, _ = play(choice(), ids, lambda index: index in taken)
    assert joined(deltas) == joined(whole)
    text, tokens, num_tokens, finish = joined(whole)
    assert [token.id for token in tokens] == used
    assert num_tokens == len(used)
    _check_starts(tokens, text, finish, stop, is_skipping)
    _check_timing(deltas, used, is_skipping)


def _check_starts(
    tokens: list[Token], text: str, finish: Finish | None, stop: StopParams, is_skipping: bool
) -> None:
    """Each token starts at the character of its first byte; without bytes, at the next one."""
    before = b""
    for index, token in enumerate(tokens):
        own = bytes_of(token.id, is_skipping=is_skipping)
        is_last = index == len(tokens) - 1 and finish == Finish(FinishReason.STOP, token.id)
        if is_last and not (stop.is_kept and own):
            start = len(text)
        elif own:
            start = num_chars(before + own[:1]) - 1
        else:
            # Without what is unfinished: that is the next character.
            start = len(codecs.getincrementaldecoder("utf-8")("replace").decode(before))
        assert token.text_start == min(start, len(text))
        before += own


def _check_timing(deltas: list[Delta], used: list[int], is_skipping: bool) -> None:
    """Each token comes as soon as all its text is shown, and no sooner."""
    num_shown = num_given = num_committed = 0
    for delta in deltas[:-1]:
        num_shown += len(delta.text)
        num_given += len(delta.tokens)
        num_committed += delta.num_tokens
        ends = [
            num_chars(b"".join(bytes_of(i, is_skipping=is_skipping) for i in used[: index + 1]))
            for index in range(num_committed)
        ]
        assert num_given == sum(end <= num_shown for end in ends)


@pytest.mark.row("S-C-052")
def test_a_stop_id_ends_the_choice_and_is_its_last_token() -> None:
    for stop, end_id, text in [
        (StopParams(), EOS, "hi"),
        (StopParams(token_ids=frozenset({BANG})), BANG, "hi"),
        (StopParams(token_ids=frozenset({BANG}), is_kept=True), BANG, "hi!"),
        (StopParams(is_kept=True), EOS, "hi"),
    ]:
        whole, _ = play(new_choice(stop), [*ids_of("hi"), end_id, *ids_of("no")], lambda _: False)
        shown, tokens, num_tokens, finish = joined(whole)
        assert (shown, finish) == (text, Finish(FinishReason.STOP, end_id))
        assert [token.id for token in tokens] == [*ids_of("hi"), end_id]
        assert tokens[-1].text_start == 2
        assert num_tokens == 3


@pytest.mark.row("S-C-035")
def test_a_kept_special_token_is_shown_only_if_special_tokens_are() -> None:
    stop = StopParams(is_kept=True)
    for is_skipping, text in ((True, "hi"), (False, "hi<eos>")):
        choice = new_choice(stop, is_skipping=is_skipping)
        assert joined(play(choice, [*ids_of("hi"), EOS], lambda _: False)[0])[0] == text


@pytest.mark.row("S-C-033")
def test_an_ignored_eos_is_a_token_like_others() -> None:
    choice = new_choice(StopParams(is_eos_ignored=True), 4)
    whole, _ = play(choice, ids_of("a<eos>b<eos>c"), lambda _: False)
    text, tokens, _, finish = joined(whole)
    assert (text, len(tokens), finish) == ("ab", 4, Finish(FinishReason.LENGTH))


@pytest.mark.row("S-C-037")
@pytest.mark.case(61)
def test_a_stop_id_among_the_least_number_of_tokens_ends_nothing() -> None:
    stop = StopParams(token_ids=frozenset({BANG}), min_tokens=2)
    ids = [BANG, EOS, *ids_of("a"), BANG]
    text, tokens, _, finish = joined(play(new_choice(stop), ids, lambda _: False)[0])
    assert (text, finish) == ("!a", Finish(FinishReason.STOP, BANG))
    assert [token.id for token in tokens] == ids


@pytest.mark.case(40)
def test_text_held_back_comes_with_the_finish_and_its_tokens_too() -> None:
    choice = new_choice(StopParams(("bcd",)))
    for token_id in ids_of("abc"):
        assert commit(choice, token_id) is None
    first = choice.take()
    assert (first.text, [token.id for token in first.tokens]) == ("a", ids_of("a"))
    assert first.num_tokens == 3
    commit(choice, EOS)
    last = choice.take()
    assert (last.text, last.num_tokens) == ("bc", 1)
    assert [(token.id, token.text_start) for token in last.tokens] == [
        *zip(ids_of("bc"), (1, 2), strict=True),
        (EOS, 3),
    ]


def test_tokens_of_a_stop_that_was_cut_off_start_where_the_text_ends() -> None:
    whole, _ = play(new_choice(StopParams(("cd",))), ids_of("abcde"), lambda _: False)
    text, tokens, _, _ = joined(whole)
    assert text == "ab"
    assert [token.text_start for token in tokens] == [0, 1, 2, 2]


@pytest.mark.case(64)
def test_invalid_bytes_are_shown_as_they_come() -> None:
    choice = new_choice(StopParams(), 3000)
    for _ in range(2000):
        commit(choice, BYTE_IDS[b"\xff"])
        delta = choice.take()
        assert (delta.text, len(delta.tokens)) == ("\ufffd", 1)


def test_a_choice_that_waits_has_made_nothing_for_its_text() -> None:
    """A request may bring a quarter of a million of them."""
    choice = new_choice(StopParams(("x",), regexes=("y",)))
    assert not choice.has_news
    choice.end(Finish(FinishReason.ABORT))
    assert choice.take() == Delta(0, "", 0, Finish(FinishReason.ABORT))
    assert choice._output is None
