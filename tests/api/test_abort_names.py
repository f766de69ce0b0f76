"""Which request an abort means: the one of exactly that name."""

import logging
from typing import Any

import orjson
import pytest
import trio
import trio.testing

from tests.api.answers import check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, JSON, StartApi, body_for
from tests.api.open_jobs import GENERATE, Requests, abort, check_aborted, finishes


@pytest.fixture
def requests_of(nursery: trio.Nursery) -> Any:
    return lambda bench: Requests(bench, nursery)


@pytest.mark.row("S-N-015")
@pytest.mark.case(10)
async def test_job_1_never_aborts_job_10(start: StartApi, requests_of: Any) -> None:
    bench = await start("text", is_automatic=False)
    requests = requests_of(bench)
    names = ("job-10", "job-1", "job", "job-1_0", "JOB-1", " job-1")
    for name in names:
        await requests.open(name)
    await check_aborted(bench, rid="job-1")
    assert sorted(requests.answers) == ["job-1"]
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    for name in names:
        assert finishes(requests.answers[name])[0][1] == ("abort" if name == "job-1" else "stop")


@pytest.mark.row("S-N-015")
@pytest.mark.case(16)
async def test_an_id_that_nobody_has_is_200_and_the_log_says_that_nothing_ended(
    start: StartApi, requests_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The contract wants 200 for both, so the log is where they differ."""
    caplog.set_level(logging.INFO, "trioserve")
    bench = await start("text", is_automatic=False)
    requests = requests_of(bench)
    await requests.open("here")
    caplog.clear()
    await check_aborted(bench, rid="not here")
    assert not requests.answers
    await check_aborted(bench, rid="here")
    await check_aborted(bench, rid="here")
    lines = [record.msg for record in caplog.records if "abort" in record.msg["event"]]
    assert [(line["rid"], line["num_aborted"]) for line in lines] == [
        ("not here", 0),
        ("here", 1),
        ("here", 0),
    ]


@pytest.mark.row("S-N-013", "S-N-015")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("other", [COMPLETIONS, CHAT, GENERATE])
async def test_a_rid_in_use_is_refused_and_free_again_when_its_request_has_ended(
    start: StartApi, requests_of: Any, path: str, other: str
) -> None:
    bench = await start("text", is_automatic=False)
    requests = requests_of(bench)
    await requests.open("same", path)
    own = {"text": "a"} if other == GENERATE else body_for(other)
    data = orjson.dumps({**own, "rid": "same"})
    refused = await bench.ask("POST", other, data=data, headers=JSON)
    message = "Invalid request: rid 'same' is already in use"
    check_error(refused, 400, message, code="invalid_value", param="rid")
    assert len(bench.engine.batch.streams) == 1
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    assert finishes(requests.answers["same"]) == [("text", "stop")]
    assert (await bench.ask("POST", other, data=data, headers=JSON)).status == 200


async def test_a_batch_cannot_take_the_name_of_another_requests_prompt(
    start: StartApi, requests_of: Any
) -> None:
    bench = await start("text", is_automatic=False)
    requests = requests_of(bench)
    await requests.open("b", GENERATE, text=["x", "y"])
    for rid in ("b_1", ["q", "b_0"]):
        body = (
            {"text": ["x", "y"], "rid": rid} if isinstance(rid, list) else body_for(CHAT, rid=rid)
        )
        path = GENERATE if isinstance(rid, list) else CHAT
        answer = await bench.ask("POST", path, data=orjson.dumps(body), headers=JSON)
        assert answer.status == 400
        assert "is already in use" in answer.json()["message"]
    bench.finish_all()


@pytest.mark.parametrize(
    ("body", "message", "code", "param"),
    [
        ({}, "rid is required unless abort_all is true", "missing_required_parameter", "rid"),
        (
            {"rid": ""},
            "rid is required unless abort_all is true",
            "missing_required_parameter",
            "rid",
        ),
        (
            {"rid": None},
            "rid is required unless abort_all is true",
            "missing_required_parameter",
            "rid",
        ),
        ({"rid": 5}, "rid must be a string", "invalid_type", "rid"),
        ({"rid": ["a"]}, "rid must be a string", "invalid_type", "rid"),
        ({"abort_all": 1}, "abort_all must be a boolean", "invalid_type", "abort_all"),
    ],
)
async def test_a_body_that_names_nothing_aborts_nothing(
    start: StartApi, requests_of: Any, body: dict[str, Any], message: str, code: str, param: str
) -> None:
    """SGLang once took an empty id for the beginning of every id."""
    bench = await start("text", is_automatic=False)
    requests = requests_of(bench)
    await requests.open("one")
    answer = await abort(bench, **body)
    check_error(answer, 400, f"Invalid request: {message}", code=code, param=param)
    assert not requests.answers
    bench.finish_all()


async def test_a_generated_id_is_a_handle_too(start: StartApi, requests_of: Any) -> None:
    bench = await start("text", is_automatic=False)
    client = bench.wire.connect()
    await client.send("POST", CHAT, body=orjson.dumps(body_for(CHAT, stream=True)))
    await trio.testing.wait_all_tasks_blocked()
    await bench.finish_step()
    await client.read_head()
    events = client.read_events()
    first = orjson.loads(await anext(events))
    await check_aborted(bench, rid=first["id"])
    rest = [text async for text in events]
    assert rest[-1] == "[DONE]"
    assert orjson.loads(rest[-2])["choices"][0]["finish_reason"] == "abort"
    client.close()
    bench.finish_all()
