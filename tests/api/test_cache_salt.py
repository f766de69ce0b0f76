"""`cache_salt`: who shares what was computed with whom, and a server on which nobody does."""

from itertools import permutations
from typing import Any

import pytest

from tests.api.answers import Answer
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, MODEL, ApiBench, StartApi, in_parallel
from tests.api.native import generate
from trioserve.core import SHARED, CacheNamespace

LONG = "The same long question, once more. "
CACHED = 32
SALTS = (None, "", "a", "A", "a ", "None", "null", MODEL, "adapter", f"{MODEL}:adapter", "č" * 128)
"""The name of a model, or of an adapter, is a salt like any other."""


async def ask(bench: ApiBench, path: str = COMPLETIONS, **fields: Any) -> Answer:
    prompt = {"prompt": LONG, **({"messages": None} if path == CHAT else {})}
    asked = {"return_cached_tokens_details": True, "max_tokens": 2}
    answer = await bench.post(path, **{**prompt, **asked, **fields})
    assert answer.status == 200, answer.body
    return answer


def cached_of(answer: Answer) -> int:
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.case(100)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_different_salts_share_nothing_and_equal_ones_everything(
    start: StartApi, path: str
) -> None:
    bench = await start(num_pages=1024)
    texts = set()
    for num_cached in (0, CACHED):
        for salt in SALTS:
            answer = await ask(bench, path, cache_salt=salt)
            assert cached_of(answer) == num_cached, salt
            texts.update(answer.texts())
    assert len(texts) == 1, "a salt changes no answer"
    # To leave it out is to share with all who do.
    assert cached_of(await ask(bench, path)) == CACHED


@pytest.mark.case(100)
@pytest.mark.parametrize(("first", "second"), list(permutations((None, "a", "b"), 2)))
async def test_nothing_is_shared_while_both_are_computed_either(
    start: StartApi, first: str | None, second: str | None
) -> None:
    bench = await start(depth=1)
    answers = await in_parallel(
        lambda: ask(bench, cache_salt=first), lambda: ask(bench, cache_salt=second)
    )
    assert list(map(cached_of, answers)) == [0, 0]
    same = await in_parallel(
        lambda: ask(bench, cache_salt="new"), lambda: ask(bench, cache_salt="new")
    )
    assert sorted(map(cached_of, same)) == [0, CACHED]


@pytest.mark.case(100)
@pytest.mark.row("S-N-014")
async def test_a_salt_means_the_same_on_every_endpoint(start: StartApi) -> None:
    bench = await start()
    body = {"text": LONG, "sampling_params": {"max_new_tokens": 2}}
    for salt, num_cached in (("a", 0), ("a", CACHED), ("b", 0), (None, 0), (None, CACHED)):
        answer = await generate(bench, **body, cache_salt=salt)
        assert answer.json()["meta_info"]["cached_tokens"] == num_cached
    for path in ENDPOINTS:
        for salt in ("a", "b", None):
            assert cached_of(await ask(bench, path, cache_salt=salt)) == CACHED


@pytest.mark.case(100)
def test_the_key_is_a_record_and_no_joined_text() -> None:
    keys = [SHARED, *(CacheNamespace(salt) for salt in SALTS if salt is not None)]
    assert len(set(keys)) == len(SALTS)
    assert CacheNamespace(None) == SHARED


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_server_can_share_nothing_at_all(start: StartApi, path: str) -> None:
    cold = await start()
    (text,) = (await ask(cold, path)).texts()
    bench = await start(disable_prefix_cache=True, enable_cache_report=True)
    for salt in (None, None, "a", "a"):
        answer = await ask(bench, path, cache_salt=salt)
        assert answer.json()["sglext"] == {"cached_tokens_details": {"device": 0, "host": 0}}
        assert cached_of(answer) == 0
        assert answer.texts() == [text]
    answers = await in_parallel(lambda: ask(bench, path, n=2), lambda: ask(bench, path))
    assert list(map(cached_of, answers)) == [0, 0]
    reply = (await generate(bench, text=LONG)).json()
    assert reply["meta_info"]["cached_tokens"] == 0
    census = bench.engine.batch.pool.statistics()
    assert (census.cached, census.free) == (0, census.total)
    assert await bench.metric("cached_tokens_total") == 0
