"""Grammars together with everything else that shapes a choice."""

import json
from functools import partial
from typing import Any

import pytest
from attrs import evolve

from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, ApiBench, StartApi, in_parallel
from tests.grammar.kit import DOCUMENT, one
from trioserve.grammar.state import GrammarState
from trioserve.testing.fake_text import EOS_ID, byte_tokenizer

ABC = "[abc]{5}"


async def at_once(bench: ApiBench, *bodies: dict[str, Any]) -> list[str]:
    """The texts of completions that begin with the same step."""
    for body in bodies:
        # Compiled before: that takes a thread, which nobody here waits for.
        if structured := {name: body[name] for name in ("regex", "json_schema") if name in body}:
            await bench.post(COMPLETIONS, max_tokens=1, prompt="warm-up", **structured)
    bench.device.is_automatic = False

    async def finish() -> Any:
        bench.finish_all()
        return await bench.get("/health")

    calls = [partial(bench.post, COMPLETIONS, **{"max_tokens": 60, **body}) for body in bodies]
    *answers, _ = await in_parallel(*calls, finish)
    return [answer.texts()[0] for answer in answers]


async def test_a_batch_mixes_rows_with_grammars_and_without(start: StartApi) -> None:
    """Nobody's output depends on what the others must be."""
    bench = await start(depth=2)
    alone = [await one(bench, prompt=f"p{i}", max_tokens=20) for i in range(3)]
    free = [{"prompt": f"p{i}", "max_tokens": 20} for i in range(3)]
    texts = await at_once(
        bench,
        free[0],
        {"prompt": "p3", "regex": "[xyz]{12}"},
        free[1],
        {"prompt": "p4", "json_schema": DOCUMENT},
        free[2],
    )
    assert [texts[0], texts[2], texts[4]] == [choice.text for choice in alone]
    assert len(texts[1]) == 12
    assert set(texts[1]) <= set("xyz")
    assert json.loads(texts[3])["name"] in ("Ann", "Bob")
    assert any(len({row.mask is None for row in plan.rows}) == 2 for plan in bench.runner.plans)
    bench.check_idle()


async def test_a_constrained_row_never_carries_a_token(start: StartApi) -> None:
    """Its mask depends on the token that the step in flight samples."""
    bench = await start(depth=2)
    await one(bench, regex="[ab]{20}")
    rows = [row for plan in bench.runner.plans for row in plan.rows]
    assert rows
    assert not any(row.is_carried for row in rows)


@pytest.mark.case(91)
async def test_logprobs_stop_and_n_with_a_grammar(start: StartApi) -> None:
    """Case 91: one logprob a token, of the model's own; the stop is honoured; own matchers."""
    bench = await start('{"a":11}', '{"a":2}')
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    fields: dict[str, Any] = {"json_schema": schema, "n": 2, "stop": ["}"]}
    answer = await bench.post(COMPLETIONS, max_tokens=40, logprobs=2, **fields)
    choices = answer.joined()
    assert [choice.text for choice in choices] == ['{"a":11', '{"a":2']
    for choice in choices:
        assert choice.finish == ("stop", "}")
        assert choice.logprobs is not None
        assert len(choice.logprobs["tokens"]) == len(choice.text) + 1
        # As if there were no grammar: the model's own probability of what came out.
        assert all(-1000 < value < 0 for value in choice.logprobs["token_logprobs"])
    free = await start('{"a":11}')
    plain = await free.post(COMPLETIONS, max_tokens=8, logprobs=2)
    (unmasked,) = plain.joined()
    assert unmasked.logprobs is not None
    assert choices[0].logprobs is not None
    assert unmasked.logprobs["token_logprobs"] == choices[0].logprobs["token_logprobs"]
    chat = await bench.post(CHAT, max_tokens=40, logprobs=True, top_logprobs=1, **fields)
    for choice in chat.joined():
        assert choice.logprobs is not None
        assert len(choice.logprobs["content"]) == len(choice.text) + 1
    bench.check_idle()


async def test_best_of_ranks_choices_of_one_grammar(start: StartApi) -> None:
    bench = await start()
    answer = await bench.post(COMPLETIONS, regex=ABC, n=2, best_of=4, max_tokens=9, seed=3)
    texts = answer.texts()
    assert len(texts) == 2
    assert all(len(text) == 5 and set(text) <= set("abc") for text in texts)
    assert answer.json()["usage"]["completion_tokens"] == 20
    assert bench.engine.grammars.num_compiled == 1


async def test_the_model_ends_where_the_grammar_lets_it(start: StartApi) -> None:
    """At a border that may be passed only EOS ends a text; it is counted and named."""
    bench = await start("abc")
    choice = await one(bench, regex="[a-z]+")
    assert choice.text == "abc"
    assert choice.finish == ("stop", EOS_ID)
    early = await start((EOS_ID, EOS_ID, EOS_ID, EOS_ID, EOS_ID, EOS_ID, EOS_ID))
    choice = await one(early, regex="[a-z]{3,9}")
    assert len(choice.text) == 3
    assert choice.finish == ("stop", EOS_ID)


async def test_min_tokens_hold_until_the_grammar_is_complete(start: StartApi) -> None:
    bench = await start("a")
    choice = await one(bench, regex="[a-z]+", min_tokens=6)
    assert len(choice.text) == 6
    assert choice.finish == ("stop", EOS_ID)
    # Only a grammar that is complete ends earlier.
    choice = await one(bench, regex="[a-z]{3}", min_tokens=6)
    assert len(choice.text) == 3
    assert choice.finish == ("stop", None)


async def test_ignore_eos_goes_on_until_the_grammar_is_complete(start: StartApi) -> None:
    bench = await start("a")
    choice = await one(bench, regex="[a-z]{1,7}", ignore_eos=True)
    assert len(choice.text) == 7
    assert choice.finish == ("stop", None)
    choice = await one(bench, regex="[a-z]+", ignore_eos=True, max_tokens=12)
    assert len(choice.text) == 12
    assert choice.finish == ("length", None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_grammar_of_the_empty_text_ends_at_once(
    start: StartApi, path: str, stream: bool
) -> None:
    bench = await start()
    for fields in ({}, {"min_tokens": 3}, {"ignore_eos": True}, {"n": 3}):
        answer = await bench.post(path, max_tokens=9, ebnf='root ::= ""', stream=stream, **fields)
        for choice in answer.joined():
            assert choice.text == ""
            assert choice.finish == ("stop", None)
    assert not bench.runner.plans
    bench.check_idle()


@pytest.mark.case(83)
async def test_tokens_that_end_a_choice_end_it_where_the_text_is_complete(start: StartApi) -> None:
    """Case 83: the tokenizer's end, one of the template's, and the request's own."""
    bench = await start()
    bench.use_tokenizer(byte_tokenizer(more_special=("<turn>", "<other>")))
    turn, other = EOS_ID + 1, EOS_ID + 2
    model = bench.engine.batch.model
    tokenizer = model.tokenizer
    tokenizer.eos_token_ids = frozenset({EOS_ID, turn})
    bench.engine.batch.model = evolve(model, tokenizer=tokenizer)
    bias = {str(turn): 100, str(other): 100}
    for ends in ({"stop_token_ids": [other]}, {}):
        choice = await one(bench, json_schema=DOCUMENT, logit_bias=bias, **ends)
        assert json.loads(choice.text)["old"] in (True, False)
        assert choice.finish == ("stop", None)
    choice = await one(bench, regex="[a-z]{2,}", logit_bias={str(turn): 100})
    assert len(choice.text) == 2
    assert choice.finish == ("stop", turn)


@pytest.mark.case(83)
async def test_a_letter_that_ends_a_choice_is_taken_only_where_nothing_else_may_come(
    start: StartApi,
) -> None:
    bench = await start("axxx")
    ends = {"stop_token_ids": [ord("x")]}
    choice = await one(bench, regex="a[xy]{2}b", **ends)
    assert choice.text == "ayyb"
    assert choice.finish == ("stop", None)
    choice = await one(bench, regex="axb", **ends)
    assert choice.text == "a"
    assert choice.finish == ("stop", ord("x"))


async def test_a_cut_text_is_the_beginning_of_a_valid_one(start: StartApi) -> None:
    bench = await start()
    whole = await one(bench, json_schema=DOCUMENT, temperature=0)
    for limit in range(1, len(whole.text)):
        cut = await one(bench, json_schema=DOCUMENT, temperature=0, max_tokens=limit)
        assert whole.text.startswith(cut.text)
        assert len(cut.text) == limit
        assert cut.finish == ("length", None)


async def constrained_texts(start: StartApi, num_pages: int) -> tuple[list[str], int]:
    """Of four requests at once in so many pages, and how often one was preempted."""
    bench = await start(num_pages=num_pages, page_size=4, max_model_len=96, depth=2)
    pattern = "[a-z]{50}[0-9]{3}"
    bodies = [{"prompt": f"{i} prompt", "regex": pattern} for i in range(4)]
    texts = await at_once(bench, *bodies)
    bench.check_idle()
    return texts, bench.engine.batch.scheduler.num_preemptions


async def test_preemption_changes_nothing(start: StartApi) -> None:
    """Tokens stay, and so does how far the grammar has come; what was in flight was not taken."""
    calm, num_calm = await constrained_texts(start, 128)
    pressed, num_pressed = await constrained_texts(start, 30)
    assert num_calm == 0
    assert num_pressed > 0
    assert pressed == calm
    assert all(len(text) == 53 for text in calm)


async def test_bias_and_penalties_choose_among_what_is_allowed(start: StartApi) -> None:
    bench = await start()
    choice = await one(bench, regex="[abc]{8}", logit_bias={str(ord("b")): 100})
    assert choice.text == "b" * 8
    choice = await one(bench, regex="[abc]{3}", presence_penalty=2)
    assert sorted(choice.text) == ["a", "b", "c"]


@pytest.mark.case(77)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_grammar_that_fails_ends_its_own_request(
    start: StartApi, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Case 77: what compiles may fail later; that is nobody else's business, and no stream begins.

    Not even the chunk with the role comes before the error.
    """

    def broken(_: GrammarState) -> memoryview:
        raise RuntimeError("boom")

    bench = await start(depth=2)
    healthy = await one(bench, max_tokens=12, prompt="other")
    monkeypatch.setattr(GrammarState, "allowed", broken)
    answers = await in_parallel(
        partial(bench.post, path, regex="[ab]{4}"),
        partial(bench.post, path, regex="[ab]{4}", stream=True),
        partial(bench.post, COMPLETIONS, max_tokens=12, prompt="other"),
    )
    assert answers[0].status == 500
    if answers[1].status == 200:
        (event,) = answers[1].events()
        assert event["error"]["code"] == "internal_error"
    else:
        assert answers[1].status == 500
    assert answers[2].texts() == [healthy.text]
    bench.check_idle()


async def test_a_token_that_the_library_refuses_fails_its_request_alone(
    start: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commit runs in the driver, which no request may end."""
    bench = await start(depth=2)
    healthy = await one(bench, max_tokens=12, prompt="other")

    def refuse(self: GrammarState, token_id: int) -> None:
        raise RuntimeError("recursion is too deep")

    monkeypatch.setattr(GrammarState, "_accept", refuse)
    answers = await in_parallel(
        partial(bench.post, COMPLETIONS, regex="[ab]{4}"),
        partial(bench.post, COMPLETIONS, max_tokens=12, prompt="other"),
    )
    assert answers[0].status == 500
    assert answers[1].texts() == [healthy.text]
    bench.check_idle()
