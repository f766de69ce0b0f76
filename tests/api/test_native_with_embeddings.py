"""SGLang's own endpoints on a server with an embedding model, alone or beside another one."""

from typing import Any

import pytest
import trio
import trio.testing

from tests.api.answers import Answer, check_error
from tests.api.kit import ApiBench
from tests.embeddings.kit import CHAT_MODEL, EMBEDDER, EMBEDDINGS, make_bench, open_api, post
from trioserve import __version__


async def start_api(nursery: trio.Nursery, **settings: Any) -> ApiBench:
    bench = make_bench(**settings)
    await nursery.start(bench.engine.run)
    await bench.engine.ready.wait()
    return open_api(bench, nursery)


async def test_generate_needs_a_model_that_generates(nursery: trio.Nursery) -> None:
    api = await start_api(nursery, is_alone=True)
    answer = await post(api, "/generate", text="Once")
    message = f"Invalid request: the model '{EMBEDDER}' does not support generation"
    check_error(answer, 400, message, code="wrong_model_kind")


async def test_generate_takes_the_model_that_generates(nursery: trio.Nursery) -> None:
    api = await start_api(nursery)
    params = {"max_new_tokens": 3}
    answer = await post(api, "/generate", text="Once", sampling_params=params)
    assert answer.json()["meta_info"]["completion_tokens"] == 3


@pytest.mark.parametrize("is_alone", [False, True])
async def test_health_generate_computes_what_the_servers_own_model_computes(
    nursery: trio.Nursery, is_alone: bool
) -> None:
    api = await start_api(nursery, is_alone=is_alone)
    assert (await api.get("/health_generate")).json() == {"status": "ok"}
    (batch, *_) = api.engine.batches
    assert batch.last_retired == 1
    assert batch.is_idle
    batch.check()


async def test_tokenize_has_the_tokenizer_of_the_model_that_is_named(nursery: trio.Nursery) -> None:
    api = await start_api(nursery, max_model_len=32)
    lengths = {
        model: (await post(api, "/tokenize", model=model, prompt="a")).json()["max_model_len"]
        for model in (EMBEDDER, CHAT_MODEL, None)
    }
    assert lengths == {EMBEDDER: 32, CHAT_MODEL: 4096, None: 4096}
    answer = await post(api, "/detokenize", tokens=[97])
    assert answer.json() == {"text": "a"}


@pytest.mark.parametrize("is_alone", [False, True])
async def test_abort_all_ends_embeddings_too(nursery: trio.Nursery, is_alone: bool) -> None:
    api = await start_api(nursery, is_alone=is_alone, is_automatic=False)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await post(api, EMBEDDINGS, input=["a", "b"]))

    nursery.start_soon(ask)
    await api.device.wait_submitted()
    assert (await post(api, "/abort_request", rid="nobody")).status == 200
    (load,) = (await api.get("/get_load")).json()
    assert (load["num_reqs"], load["num_tokens"]) == (2, 2)
    await trio.testing.wait_all_tasks_blocked()
    assert not answers
    assert (await post(api, "/abort_request", abort_all=True)).status == 200
    await trio.testing.wait_all_tasks_blocked()
    assert [answer.status for answer in answers] == [400]
    api.finish_all()


async def test_server_info_of_an_embedding_model_has_no_pool(nursery: trio.Nursery) -> None:
    api = await start_api(nursery, is_alone=True)
    info = (await api.get("/server_info")).json()
    assert info["version"] == __version__
    assert info["served_model_name"] == EMBEDDER
    assert (info["max_total_tokens"], info["max_prefill_tokens"]) == (0, 16)
    assert (await api.get("/get_load")).json()[0]["num_tokens"] == 0
