"""Two models in one server, or an embedding model alone: names, kinds, and what is told of them."""

from typing import Any

import pytest

from tests.api.answers import check_error
from tests.api.kit import CHAT, COMPLETIONS, MESSAGES
from tests.embeddings.conftest import StartApi
from tests.embeddings.kit import (
    CHAT_MODEL,
    EMBEDDER,
    EMBEDDINGS,
    check_vectors,
    post,
    vectors_of,
)
from tests.engine.kit import expected
from trioserve.config import ServerConfig
from trioserve.engine.engine import Engine
from trioserve.errors import ConfigError
from trioserve.hosting import announcement
from trioserve.testing.fake_device import FakeDevice
from trioserve.testing.fake_embedder import SIZE, FakeEmbeddingRunner, fake_embedder

BODIES: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "Once"},
    CHAT: {"messages": MESSAGES},
    EMBEDDINGS: {"input": "Once"},
}
NAMES = {"served_model_name": ("talk", "chat"), "embedding_served_model_name": ("vec", "emb")}


@pytest.mark.row("S-B-005")
@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_an_embedding_model_does_not_generate(
    api: StartApi, is_alone: bool, path: str
) -> None:
    answer = await post(await api(is_alone=is_alone), path, model=f" {EMBEDDER}", **BODIES[path])
    message = f"Invalid request: the model ' {EMBEDDER}' does not support generation"
    check_error(answer, 400, message, code="wrong_model_kind", param="model")


@pytest.mark.row("S-B-005")
async def test_a_model_that_generates_does_not_embed(api: StartApi) -> None:
    answer = await post(await api(), model=CHAT_MODEL, input="Once")
    message = f"Invalid request: the model '{CHAT_MODEL}' does not support embeddings"
    check_error(answer, 400, message, code="wrong_model_kind", param="model")


@pytest.mark.row("S-B-005")
@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("path", BODIES)
async def test_an_unknown_model_is_404_on_every_endpoint(
    api: StartApi, is_alone: bool, path: str
) -> None:
    bench = await api(is_alone=is_alone)
    answer = await post(bench, path, model="no-such" * 20, **BODIES[path])
    message = f"The model '{('no-such' * 20)[:64]}…' does not exist"
    check_error(answer, 404, message, code="model_not_found", param="model")


async def test_a_fault_of_the_body_is_told_before_the_kind_of_model(api: StartApi) -> None:
    answer = await post(await api(is_alone=True), COMPLETIONS, prompt="Once", temperature=-1)
    message = "Invalid request: temperature must be non-negative"
    check_error(answer, 400, message, code="invalid_value", param="temperature")


@pytest.mark.parametrize("name", ["vec", "emb", EMBEDDER, "  vec "])
async def test_each_model_answers_to_all_its_names(api: StartApi, name: str) -> None:
    bench = await api(**NAMES)
    answer = await post(bench, model=name, input="a")
    check_vectors(vectors_of(answer), b"a")
    assert answer.json()["model"] == name
    for talker in ("talk", "chat", CHAT_MODEL):
        answer = await post(bench, COMPLETIONS, model=talker, prompt="Once", max_tokens=4)
        assert answer.json()["choices"][0]["text"] == expected(b"Once", 4)


async def test_any_name_means_the_model_of_the_endpoints_kind_where_it_may(api: StartApi) -> None:
    bench = await api(allow_any_model=True, **NAMES)
    answer = await post(bench, model="gpt-4", input="a")
    check_vectors(vectors_of(answer), b"a")
    assert answer.json()["model"] == "vec"
    # A name that is known is not just any name.
    answer = await post(bench, model="talk", input="a")
    assert answer.json()["error"]["code"] == "wrong_model_kind"
    answer = await post(bench, COMPLETIONS, model="gpt-4", prompt="Once", max_tokens=4)
    assert answer.json()["choices"][0]["text"] == expected(b"Once", 4)


@pytest.mark.row("S-M-001", "S-M-003")
async def test_both_models_are_listed_under_all_names(api: StartApi) -> None:
    bench = await api(max_model_len=32, **NAMES)
    cards = (await bench.get("/v1/models")).json()["data"]
    assert [(card["id"], card["root"], card["max_model_len"]) for card in cards] == [
        ("talk", CHAT_MODEL, 4096),
        ("chat", CHAT_MODEL, 4096),
        ("vec", EMBEDDER, 32),
        ("emb", EMBEDDER, 32),
    ]
    for card in cards:
        assert (await bench.get(f"/v1/models/{card['id']}")).json() == card
    assert (await bench.get(f"/v1/models/{EMBEDDER}")).json() == cards[2]


@pytest.mark.row("S-M-001", "S-M-005")
async def test_an_embedding_model_alone_is_the_servers_model(api: StartApi) -> None:
    bench = await api(is_alone=True, served_model_name=("vec",), max_step_tokens=16)
    (card,) = (await bench.get("/v1/models")).json()["data"]
    assert (card["id"], card["root"]) == ("vec", EMBEDDER)
    info = (await bench.get("/get_model_info")).json()
    assert info["is_generation"] is False
    assert (info["served_model_name"], info["architectures"]) == ("vec", ["FakeModel"])
    assert info["server_config"]["page_size"] is None
    assert info["server_config"]["chunked_prefill_size"] == 16
    assert (await bench.get("/health")).json() == {"status": "ok"}
    answer = await post(bench, model="vec", input="a")
    check_vectors(vectors_of(answer), b"a")


@pytest.mark.row("S-M-005")
async def test_the_model_beside_does_not_change_what_is_told_of_the_first(api: StartApi) -> None:
    bench = await api()
    info = (await bench.get("/get_model_info")).json()
    assert info["is_generation"] is True
    assert info["architectures"] == ["FakeForCausalLM"]


async def test_the_ready_line_of_an_embedding_model_alone(api: StartApi) -> None:
    bench = await api(is_alone=True)
    line = announcement(bench.engine, "http://x:1")
    assert line.startswith(f"http://x:1 model={EMBEDDER} dtype=float32 dimensions={SIZE} — try: ")
    assert "curl http://x:1/v1/embeddings -H" in line
    assert f'{{"model": "{EMBEDDER}", "input": "' in line


async def test_the_ready_line_of_two_models(api: StartApi) -> None:
    line = announcement((await api()).engine, "http://x:1")
    assert f"tokens=256 embedding_model={EMBEDDER} — try: curl http://x:1/v1/chat" in line


async def test_an_embedding_model_has_none_beside_it() -> None:
    embedder = fake_embedder(FakeEmbeddingRunner())
    config = ServerConfig(model_path="one", embedding_model_path="two")
    engine = Engine(config, lambda _: embedder, FakeDevice(), load_beside=lambda _: embedder)
    with pytest.raises(ConfigError, match="--model-path one is an embedding model itself"):
        await engine.run()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"embedding_model_path": ""}, "--embedding-model-path must not be empty"),
        ({"embedding_served_model_name": ("a",)}, "name needs --embedding-model-path"),
        ({"embedding_model_path": "a", "is_embedding": True}, "exclude each other"),
        ({"model_path": "a", "embedding_model_path": "a"}, "cannot both be named a"),
        (
            {"served_model_name": ("a", "b"), "embedding_model_path": "b"},
            "two models cannot both be named b",
        ),
        (
            {
                "model_path": "a",
                "embedding_model_path": "c",
                "embedding_served_model_name": ("a",),
            },
            "two models cannot both be named a",
        ),
        (
            {"embedding_model_path": "c", "embedding_served_model_name": ("",)},
            "--embedding-served-model-name must not be empty",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ServerConfig(**settings)
