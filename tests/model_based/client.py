"""One request of a history: its reader, what it has got, and what it must come to."""

from functools import cache

from attrs import define, field

from tests.model_based.reference import VOCABULARY, Outcome, one_at_a_time
from trioserve.core import FinishReason, ReadoutParams, TokenLogprobs
from trioserve.engine.choice import Choice
from trioserve.engine.request import Token
from trioserve.engine.stream import RequestStream
from trioserve.testing.fake_readout import fake_token_logprobs


@define(eq=False)
class Client:
    """One request, its reader, and what the reader has got."""

    stream: RequestStream
    is_reading: bool = True
    is_aborted: bool = False
    num_billed_at_abort: int | None = None
    texts: list[str] = field(init=False)
    tokens: list[list[Token]] = field(init=False)
    prompts: list[list[TokenLogprobs]] = field(init=False)
    expected: list[Outcome | None] = field(init=False)
    """What each choice must come to; None if its row fails, and the request with it."""

    def __attrs_post_init__(self) -> None:
        request = self.stream.request
        self.texts = ["" for _ in self.stream.choices]
        self.tokens = [[] for _ in self.stream.choices]
        self.prompts = [[] for _ in self.stream.choices]
        self.expected = [
            one_at_a_time(generation.prompt_ids, index, generation.max_tokens, generation.stop)
            for index in range(request.num_sequences)
            for generation in [request.generation_of(index)]
        ]

    def read(self) -> None:
        """Take everything, as `RequestStream.receive` does."""
        for choice in self.stream.choices:
            if choice.has_news:
                delta = choice.take()
                self.texts[choice.index] += delta.text
                self.tokens[choice.index] += delta.tokens
                self.prompts[choice.index] += delta.prompt_logprobs

    def check(self) -> None:
        """What was read is the beginning of the right answer, and all of it once it has ended."""
        for choice, text, expected in zip(
            self.stream.choices, self.texts, self.expected, strict=True
        ):
            if expected is None:
                assert not text, f"a failed row produced {text!r}"
                assert choice.num_tokens == 0
                continue
            assert choice.num_tokens <= expected.num_tokens
            right = expected.text
            if choice.finish is not None and choice.finish.reason is FinishReason.ABORT:
                right = expected.text_of(choice.num_tokens)
            elif choice.finish is not None:
                assert choice.finish == expected.finish
                assert choice.num_tokens == expected.num_tokens
            assert right.startswith(text), f"{text!r} is not how {right!r} begins"
            token_ids = [token.id for token in self.tokens[choice.index]]
            if choice.finish is not None and not choice.has_news:
                assert text == right
                assert token_ids == [*expected.token_ids[: choice.num_tokens]]
                self._check_prompt(choice, self.prompts[choice.index])
            assert token_ids == [*expected.token_ids[: len(token_ids)]]
        if self.num_billed_at_abort is not None:
            billed = self.stream.num_output_tokens
            assert billed == self.num_billed_at_abort, "a token was billed after the abort"

    def _check_prompt(self, choice: Choice, read: list[TokenLogprobs]) -> None:
        """All of it or, if the choice ended before its first token, nothing."""
        generation = self.stream.request.generation_of(choice.index)
        first = generation.readout.prompt_from
        prompt = generation.prompt_ids
        if first is None or (choice.num_tokens == 0 and not read):
            is_whole = choice.finish is not None and choice.finish.reason is FinishReason.LENGTH
            assert not read
            assert first is None or not is_whole or len(prompt) <= max(1, first)
            return
        assert read == right_prompt(prompt, generation.readout)


@cache
def right_prompt(prompt: tuple[int, ...], readout: ReadoutParams) -> list[TokenLogprobs]:
    """What the fake model has to say of a prompt; slow to find."""
    assert readout.prompt_from is not None
    return [
        fake_token_logprobs(prompt[:position], prompt[position], readout, VOCABULARY)
        for position in range(max(1, readout.prompt_from), len(prompt))
    ]
