"""`POST /v1/embeddings`: what it takes, and the form of what it gives."""

from typing import Any

import numpy as np
import orjson
import pytest
import trio
import trio.testing

from tests.api.answers import check_error
from tests.api.kit import JSON
from tests.embeddings.conftest import StartApi
from tests.embeddings.kit import EMBEDDER, EMBEDDINGS, check_vectors, post, vectors_of
from trioserve.model.embedder_spec import Matryoshka
from trioserve.testing.fake_embedder import SIZE, fake_vector

KINDS = (
    "Invalid request: input must be a string, an array of strings, an array of token ids, or an "
    "array of arrays of token ids"
)


@pytest.mark.row("S-B-001", "S-B-002", "S-B-005")
async def test_the_answer_has_the_contracts_form(api: StartApi) -> None:
    answer = await post(await api(), input="hello")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    reply = answer.json()
    (item,) = reply.pop("data")
    assert reply == {
        "object": "list",
        "model": EMBEDDER,
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }
    vector = item.pop("embedding")
    assert item == {"object": "embedding", "index": 0}
    assert len(vector) == SIZE
    assert all(isinstance(component, float) for component in vector)
    check_vectors(vectors_of(answer), b"hello")


@pytest.mark.row("S-B-002", "S-B-003", "S-N-012")
@pytest.mark.case(110)
@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("one", [b"one"]),
        (["one"], [b"one"]),
        (["longer", "b", "longer", "cc"], [b"longer", b"b", b"longer", b"cc"]),
        ([104, 105], [b"hi"]),
        ([104.0, 105], [b"hi"]),
        ([[104], [105, 33], [104]], [b"h", b"i!", b"h"]),
        (["x" * (1 + index % 7) for index in range(100)], None),
        ("\x00", [b"\x00"]),
        ("🙂", ["🙂".encode()]),
    ],
)
async def test_every_form_of_input_gives_a_vector_each_in_order(
    api: StartApi, value: Any, texts: list[bytes] | None
) -> None:
    texts = texts or [text.encode() for text in value]
    answer = await post(await api(), input=value)
    check_vectors(vectors_of(answer), *texts)
    assert answer.json()["usage"]["prompt_tokens"] == sum(map(len, texts))


@pytest.mark.row("S-N-012")
@pytest.mark.case(107)
async def test_base64_is_the_same_vectors_as_little_endian_floats(api: StartApi) -> None:
    bench = await api()
    numbers = await post(bench, input=["a", "bc"], encoding_format="float")
    text = await post(bench, input=["a", "bc"], encoding_format="base64")
    assert all(isinstance(item["embedding"], str) for item in text.json()["data"])
    for left, right in zip(vectors_of(numbers), vectors_of(text), strict=True):
        np.testing.assert_array_equal(left, right)
    default = await post(bench, input=["a", "bc"], encoding_format=None)
    assert default.json() == numbers.json()


@pytest.mark.case(107)
@pytest.mark.parametrize(
    ("value", "detail", "code"),
    [
        ("hex", "encoding_format must be float or base64", "invalid_value"),
        ("", "encoding_format must be float or base64", "invalid_value"),
        (1, "encoding_format must be a string", "invalid_type"),
    ],
)
async def test_no_other_encoding_is_taken(
    api: StartApi, value: Any, detail: str, code: str
) -> None:
    answer = await post(await api(), input="a", encoding_format=value)
    message = f"Invalid request: {detail}"
    check_error(answer, 400, message, code=code, param="encoding_format")


@pytest.mark.case(110)
@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("", "input"),
        (" \t\n", "input"),
        ([], "input"),
        ([""], "input[0]"),
        (["a", "  ", ""], "input[1]"),
        ([[1], []], "input[1]"),
        ([[]], "input[0]"),
    ],
)
async def test_an_empty_input_is_named(api: StartApi, value: Any, name: str) -> None:
    answer = await post(await api(), input=value)
    message = f"Invalid request: {name} cannot be empty"
    check_error(answer, 400, message, code="invalid_value", param=name)


@pytest.mark.parametrize(
    "value",
    [1, 1.5, True, {}, [1, "a"], ["a", 1], ["a", None], [None], [[1], "a"], [[1], 2], [1.5], [True],
     [["a"]], [[[1]]], [{}]],
)  # fmt: skip
async def test_an_input_of_another_type_is_refused(api: StartApi, value: Any) -> None:
    check_error(
        await post(await api(), input=value), 400, KINDS, code="invalid_type", param="input"
    )


@pytest.mark.parametrize("fields", [{}, {"input": None}])
async def test_an_input_is_required(api: StartApi, fields: dict[str, Any]) -> None:
    answer = await post(await api(), **fields)
    code = "missing_required_parameter"
    check_error(answer, 400, "Invalid request: input is required", code=code, param="input")


@pytest.mark.parametrize("model", [None, "", "  "])
@pytest.mark.row("S-B-001")
async def test_a_model_is_required(api: StartApi, model: str | None) -> None:
    answer = await post(await api(), input="a", model=model)
    code = "missing_required_parameter"
    check_error(answer, 400, "Invalid request: model is required", code=code, param="model")


@pytest.mark.parametrize(("value", "wrong"), [([3, 257], 257), ([[3], [-1]], -1), ([2**70], 2**70)])
async def test_a_token_id_that_is_none_is_named(api: StartApi, value: Any, wrong: int) -> None:
    data = orjson.dumps({"model": EMBEDDER, "input": "x"}).replace(b'"x"', str(value).encode())
    answer = await (await api()).ask("POST", EMBEDDINGS, data=data, headers=JSON)
    message = f"Invalid request: input contains token id {wrong} outside [0, 256]"
    check_error(answer, 400, message, code="invalid_value", param="input")


@pytest.mark.case(109)
@pytest.mark.parametrize(
    ("value", "name", "length"),
    [
        ("x" * 33, "input", "33"),
        ([7] * 40, "input", "40"),
        (["x" * 32, "x" * 35], "input[1]", "35"),
        ([[7] * 33, [7]], "input[0]", "33"),
        # So long that it is not tokenized at all.
        ("x" * 20_000, "input", "at least 4000"),
    ],
)
async def test_a_text_that_is_too_long_is_refused_and_not_cut(
    api: StartApi, value: Any, name: str, length: str
) -> None:
    bench = await api(max_model_len=32)
    answer = await post(bench, input=value)
    message = (
        "This model's maximum context length is 32 tokens. "
        f"However, your prompt has {length} tokens."
    )
    check_error(answer, 400, message, code="context_length_exceeded", param=name)
    check_vectors(vectors_of(await post(bench, input="x" * 32)), b"x" * 32)


async def test_there_may_be_2048_inputs_and_no_more(api: StartApi) -> None:
    bench = await api(max_step_tokens=4096)
    assert len(vectors_of(await post(bench, input=["a"] * 2048))) == 2048
    answer = await post(bench, input=["a"] * 2049)
    message = "Invalid request: input has 2049 entries, the limit is 2048"
    check_error(answer, 400, message, code="invalid_value", param="input")


async def test_the_models_prompt_comes_before_a_text_but_not_before_ids(api: StartApi) -> None:
    bench = await api(prompt="query: ")
    answer = await post(bench, input=["a", "bc"])
    check_vectors(vectors_of(answer), b"query: a", b"query: bc")
    assert answer.json()["usage"]["prompt_tokens"] == 17
    check_vectors(vectors_of(await post(bench, input=[97])), b"a")


@pytest.mark.row("S-B-004")
@pytest.mark.parametrize("size", [3, 3.0])
async def test_fewer_dimensions_are_the_first_ones_at_length_1(api: StartApi, size: float) -> None:
    bench = await api(matryoshka=Matryoshka(()))
    for encoding in ("float", "base64"):
        answer = await post(bench, input="hi", dimensions=size, encoding_format=encoding)
        (vector,) = vectors_of(answer)
        kept = fake_vector(tuple(b"hi"))[:3]
        np.testing.assert_allclose(vector, kept / np.linalg.norm(kept), rtol=1e-6)


@pytest.mark.row("S-B-004")
@pytest.mark.parametrize("matryoshka", [None, Matryoshka(()), Matryoshka((2, 4))])
async def test_all_dimensions_are_always_accepted(
    api: StartApi, matryoshka: Matryoshka | None
) -> None:
    bench = await api(matryoshka=matryoshka)
    check_vectors(vectors_of(await post(bench, input="hi", dimensions=SIZE)), b"hi")


@pytest.mark.row("S-B-004")
@pytest.mark.parametrize(
    ("matryoshka", "dimensions", "detail", "code"),
    [
        (None, 4, "this model does not support the dimensions parameter", "invalid_value"),
        (None, 0, "dimensions must be between 1 and 8", "invalid_value"),
        (None, 9, "dimensions must be between 1 and 8", "invalid_value"),
        (Matryoshka(()), -1, "dimensions must be between 1 and 8", "invalid_value"),
        (Matryoshka(()), 2**63, "dimensions must be between 1 and 8", "invalid_value"),
        (Matryoshka(()), 1e30, "dimensions must be between 1 and 8", "invalid_value"),
        (Matryoshka((2, 4)), 3, "dimensions must be one of 2, 4, 8", "invalid_value"),
        (Matryoshka(()), "4", "dimensions must be an integer", "invalid_type"),
        (Matryoshka(()), 4.5, "dimensions must be an integer", "invalid_type"),
        (Matryoshka(()), True, "dimensions must be an integer", "invalid_type"),
    ],
)
async def test_dimensions_that_the_model_does_not_have_are_refused(
    api: StartApi, matryoshka: Matryoshka | None, dimensions: Any, detail: str, code: str
) -> None:
    answer = await post(await api(matryoshka=matryoshka), input="hi", dimensions=dimensions)
    check_error(answer, 400, f"Invalid request: {detail}", code=code, param="dimensions")


async def test_fields_without_effect_are_taken_in_their_type_alone(api: StartApi) -> None:
    bench = await api()
    fields = {"user": "me", "metadata": {}, "unknown": [1], "lora_path": None, "dimensions": None}
    check_vectors(vectors_of(await post(bench, input="a", **fields)), b"a")
    answer = await post(bench, input="a", user=1)
    message = "Invalid request: user must be a string"
    check_error(answer, 400, message, code="invalid_type", param="user")
    answer = await post(bench, input="a", lora_path="some/adapter")
    message = (
        "Invalid request: LoRA is not enabled; start the server with --enable-lora or --lora-paths"
    )
    check_error(answer, 400, message, code="lora_not_available", param="lora_path")


async def test_faults_are_told_in_the_contracts_order(api: StartApi) -> None:
    bench = await api(is_automatic=False, max_running_requests=1, max_queued_requests=0)
    long = "x" * 100

    async def ask(**fields: Any) -> str:
        answer = await post(bench, **fields)
        error = answer.json()["error"]
        return f"{answer.status} {error['code']} {error['param']}"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: post(bench, input="holds the device"))
        await trio.testing.wait_all_tasks_blocked()
        assert await ask(model="?", input=long, dimensions="x") == "400 invalid_type dimensions"
        assert await ask(model="?", input=long, dimensions=9) == "404 model_not_found model"
        assert await ask(input=long, dimensions=9) == "400 invalid_value dimensions"
        assert await ask(input=long) == "503 overloaded None"
        bench.finish_all()
    assert await ask(input=long) == "400 context_length_exceeded input"
