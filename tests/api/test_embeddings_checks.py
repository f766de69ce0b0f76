"""`/v1/embeddings` checks like the endpoints that generate: in one order, and before it works."""

import pytest
import trio

from tests.api.answers import check_error
from tests.embeddings.kit import EMBEDDINGS, make_bench, open_api, post
from trioserve.text.tokenizer import Tokenizer


async def test_a_field_out_of_range_is_told_before_an_unknown_model(nursery: trio.Nursery) -> None:
    bench = make_bench()
    await nursery.start(bench.engine.run)
    await bench.engine.ready.wait()
    answer = await post(open_api(bench, nursery), EMBEDDINGS, model="?", input=[1, 99_999_999])
    assert (answer.status, answer.json()["param"]) == (400, "input")


async def test_a_text_too_long_by_its_length_alone_is_not_tokenized(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(max_model_len=32)
    await nursery.start(bench.engine.run)
    await bench.engine.ready.wait()
    encoded: list[str] = []
    encode = Tokenizer.encode

    def record(self: Tokenizer, text: str) -> list[int]:
        encoded.append(text)
        return encode(self, text)

    monkeypatch.setattr(Tokenizer, "encode", record)
    monkeypatch.setattr(Tokenizer, "least_tokens", lambda _self, text: len(text) // 2)
    answer = await post(open_api(bench, nursery), EMBEDDINGS, input=["short", "x" * 100])
    message = (
        "This model's maximum context length is 32 tokens. "
        "However, your prompt has at least 50 tokens."
    )
    check_error(answer, 400, message, code="context_length_exceeded", param="input[1]")
    assert not encoded
