"""A choice that ends because its text says so, as far as its reader asked for that."""

from collections.abc import Callable

import pytest

from trioserve.core import Finish, FinishReason, SamplingParams, SequenceId, StopParams
from trioserve.engine.choice import Choice, Prompt
from trioserve.engine.request import Generation, TextWatch
from trioserve.errors import RequestFailed
from trioserve.testing.fake_text import byte_tokenizer
from trioserve.text.regex_stops import SearchBudget

STOP = Finish(FinishReason.STOP)


def until(mark: str, seen: list[str]) -> Callable[[], TextWatch]:
    """Watches that end a choice with `mark`; `seen` is all that they are told."""

    def new_watch() -> TextWatch:
        text: list[str] = []

        def watch(piece: str) -> bool:
            text.append(piece)
            seen.append(piece)
            return mark in "".join(text)

        return watch

    return new_watch


def choice(new_watch: Callable[[], TextWatch], stop: StopParams | None = None) -> Choice:
    generation = Generation((1,), 100, SamplingParams(), stop or StopParams(), new_watch=new_watch)
    return Choice.of(0, Prompt.of(generation, byte_tokenizer(), SearchBudget()), SequenceId(1))


def play(choice: Choice, text: str) -> tuple[int, Finish | None]:
    """How many of the text's tokens the choice takes, and how it ends."""
    for num_taken, token_id in enumerate(text.encode(), start=1):
        choice.sequence.num_in_flight += 1
        finish = choice.commit(token_id, None)
        if finish is not None:
            choice.end(finish)
            return num_taken, finish
    return len(text), None


def test_a_choice_ends_with_the_token_that_completes_its_text() -> None:
    seen: list[str] = []
    one = choice(until("}", seen))
    assert play(one, "{ž}{}") == (4, STOP)
    assert seen == ["{", "", "ž", "}"]
    assert one.take().text == "{ž}"


def test_each_choice_has_a_watch_of_its_own() -> None:
    new_watch = until("ab", [])
    assert play(choice(new_watch), "a") == (1, None)
    assert play(choice(new_watch), "b") == (1, None)


def test_no_choice_ends_before_its_least_tokens() -> None:
    assert play(choice(until("b", []), StopParams(min_tokens=4)), "abcdef") == (4, STOP)


def test_a_stop_comes_first_and_text_that_it_holds_back_is_not_seen() -> None:
    seen: list[str] = []
    one = choice(until("b", seen), StopParams(("bc",)))
    assert play(one, "abc") == (3, Finish(FinishReason.STOP, "bc"))
    assert "".join(seen) == "a"
    one = choice(until("b", []), StopParams(("bc",)))
    assert play(one, "abd") == (3, STOP)


def test_a_watch_that_breaks_fails_its_own_request() -> None:
    def broken(_text: str) -> bool:
        raise RuntimeError("broken")

    with pytest.raises(RequestFailed, match="could not be made text"):
        play(choice(lambda: broken), "a")
