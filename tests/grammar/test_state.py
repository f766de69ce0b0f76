"""How far a choice has come: what it may say next, what it must, and where it ends."""

import pytest

from tests.grammar.walks import BYTES, allowed, compiled
from trioserve.errors import RequestFailed
from trioserve.grammar import state as grammar_state
from trioserve.grammar.compilation import compile_constraint, new_compiler
from trioserve.grammar.compiled import CompiledGrammar
from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.state import GrammarState
from trioserve.grammar.vocabulary import Vocabulary
from trioserve.testing.fake_text import EOS_ID, byte_tokenizer


def state_of(
    pattern: str, *, ends: frozenset[int] = frozenset({EOS_ID}), after: bytes | None = None
) -> GrammarState:
    return GrammarState(compiled(Constraint(GrammarKind.REGEX, pattern)), ends, after)


def feed(state: GrammarState, text: bytes) -> None:
    for byte in text:
        state.accept(byte)


def test_what_is_allowed_is_what_the_grammar_goes_on_with() -> None:
    state = state_of("ab?[xy]")
    assert allowed(state) == [*b"a"]
    assert state.forced() == (ord("a"),)
    feed(state, b"a")
    assert state.forced() == ()
    assert allowed(state) == [*b"bxy"]
    feed(state, b"b")
    assert not state.is_finished
    feed(state, b"y")
    assert state.is_finished
    assert allowed(state) == [EOS_ID]


def test_asking_changes_nothing() -> None:
    state = state_of("a[bc]*")
    for text in (b"", b"a", b"b", b"c"):
        feed(state, text)
        once = allowed(state)
        assert (state.forced(), state.is_finished, allowed(state)) == (
            state.forced(),
            False,
            once,
        )


def test_a_token_that_is_not_allowed_fails_the_request() -> None:
    state = state_of("ab")
    feed(state, b"a")
    with pytest.raises(RequestFailed):
        state.accept(ord("a"))
    with pytest.raises(RequestFailed):
        state.accept(BYTES.num_ids + 5)


def test_what_is_forced_is_forced_one_by_one() -> None:
    """Taking one of several leaves the others."""
    state = state_of("abcdef[gh]")
    assert bytes(state.forced()) == b"abcdef"
    for index in range(6):
        assert bytes(state.forced()) == b"abcdef"[index:]
        assert allowed(state) == [b"abcdef"[index]]
        state.accept(b"abcdef"[index])
    assert state.forced() == ()
    assert allowed(state) == [*b"gh"]


def test_two_choices_of_one_grammar_know_nothing_of_each_other() -> None:
    grammar = compiled(Constraint(GrammarKind.REGEX, "[ab]c"))
    first, second = (GrammarState(grammar, frozenset({EOS_ID})) for _ in range(2))
    feed(first, b"ac")
    assert first.is_finished
    assert allowed(second) == [*b"ab"]


def test_an_end_that_is_ignored_is_not_allowed() -> None:
    state = state_of("a+", ends=frozenset())
    feed(state, b"a")
    assert allowed(state) == [ord("a")]


def test_special_tokens_are_never_text() -> None:
    tokenizer = byte_tokenizer(more_special=("<turn>",))
    vocabulary = Vocabulary.of(tokenizer, 300)
    assert vocabulary.tokens[256:] == (b"", b"")
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary
    constraint = Constraint(GrammarKind.REGEX, r"[\s\S]*")
    made = compile_constraint(new_compiler(vocabulary), vocabulary, constraint)
    state = GrammarState(CompiledGrammar.of(made, vocabulary), frozenset({EOS_ID}))
    assert set(allowed(state)) <= {*range(256), EOS_ID}


def test_before_the_grammar_begins_anything_may_come_but_an_end() -> None:
    """The block of a model that reasons: its end begins the grammar."""
    state = state_of("[0-9]{2}", after=b"</think>")
    assert not state.has_begun
    assert set(allowed(state)) == set(range(256))
    assert state.forced() == ()
    feed(state, b"hm </thin </think")
    assert not state.is_finished
    assert ord("z") in allowed(state)
    feed(state, b">")
    assert state.has_begun
    assert allowed(state) == [*b"0123456789"]
    feed(state, b"42")
    assert state.is_finished


def test_a_token_may_hold_the_end_of_the_block_and_what_follows_it() -> None:
    vocabulary = Vocabulary((b"a", b"k>\n\n1", b"2", b"</thin", b"k>x", b"", b"1"), 7, (5,))
    constraint = Constraint(GrammarKind.REGEX, "12")
    made = compile_constraint(new_compiler(vocabulary), vocabulary, constraint)
    grammar = CompiledGrammar.of(made, vocabulary)
    state = GrammarState(grammar, frozenset({5}), b"</think>")
    for token_id in (0, 3, 1):
        state.accept(token_id)
    assert allowed(state) == [2]
    wrong = GrammarState(grammar, frozenset({5}), b"</think>")
    wrong.accept(3)
    with pytest.raises(RequestFailed):
        wrong.accept(4)


def test_a_grammar_that_takes_too_long_fails_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ambiguous one takes longer with each token; this runs on the event loop."""
    grammar = compiled(Constraint(GrammarKind.EBNF, 'root ::= "" | "a" | root root'))
    state = GrammarState(grammar, frozenset({EOS_ID}))
    feed(state, b"a" * 10)
    monkeypatch.setattr(grammar_state, "MAX_ACCEPT_S", -1.0)
    with pytest.raises(RequestFailed, match="too long"):
        state.accept(ord("a"))


def test_what_the_library_raises_fails_the_request() -> None:
    state = state_of("ab")

    class Broken:
        def accept_token(self, token_id: int) -> bool:
            raise RuntimeError("recursion is too deep")

    state._matcher = Broken()  # type: ignore[assignment]
    with pytest.raises(RequestFailed, match="recursion"):
        state.accept(ord("a"))
