"""The bytes of a request body, before anything in them is looked at."""

import pytest

from tests.api.answers import check_error
from tests.api.kit import COMPLETIONS, ENDPOINTS, StartApi

VALID = b'{"model": "org/fake", "prompt": "Once"}'
BAD_JSON = "Invalid request: body is not valid JSON: "


@pytest.mark.row("S-N-001")
@pytest.mark.case(49, 53)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"hello",
        b"{",
        b'{"model": }',
        b"{'model': 'a'}",
        VALID + b"x",
        VALID + VALID,
        VALID[:-1] + b",}",
        VALID.replace(b"Once", b"On\xffce"),
        VALID.replace(b"Once", b"\xed\xa0\x80"),
        VALID.replace(b"Once", b"\\ud800"),
        VALID.replace(b"Once", b"\\udc00\\ud800"),
        VALID.replace(b"Once", b"On\x00ce"),
        VALID.replace(b"Once", b"On\nce"),
        VALID.replace(b'"Once"', b"NaN"),
        VALID[:-1] + b', "temperature": NaN}',
        VALID[:-1] + b', "temperature": Infinity}',
        VALID[:-1] + b', "temperature": -Infinity}',
        VALID[:-1] + b', "temperature": 1e400}',
        b"\xef\xbb\xbf" + VALID,
        VALID.decode().encode("utf-16"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
async def test_what_is_not_json_is_400(start: StartApi, path: str, data: bytes) -> None:
    """Cases 49 and 53."""
    bench = await start("ok")
    answer = await bench.post_raw(path, data)
    shown = answer.json()["message"]
    check_error(answer, 400, shown, code="invalid_json")
    assert shown.startswith(BAD_JSON)
    assert len(shown) > len(BAD_JSON)
    assert (await bench.post(path)).texts() == ["ok"]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("data", [b"[]", b"null", b'"x"', b"1", b"true", b"[" * 200 + b"]" * 200])
async def test_json_that_is_not_an_object_is_400(start: StartApi, path: str, data: bytes) -> None:
    bench = await start("ok")
    answer = await bench.post_raw(path, data)
    check_error(answer, 400, "Invalid request: body must be a JSON object", code="invalid_json")


async def test_of_equal_keys_the_last_one_wins(start: StartApi) -> None:
    bench = await start("ok")
    data = b'{"prompt": 5, "model": "no-such", "model": "org/fake", "prompt": "Once"}'
    assert (await bench.post_raw(COMPLETIONS, data)).texts() == ["ok"]
    assert bench.prompts() == [tuple(b"Once")]


@pytest.mark.parametrize(
    ("field", "status"), [("unknown", 200), ("extra_key", 200), ("prompt", 400), ("stop", 400)]
)
async def test_deep_nesting_is_a_value_like_any_other(
    start: StartApi, field: str, status: int
) -> None:
    bench = await start("ok")
    deep = b"[" * 200 + b"]" * 200
    answer = await bench.post_raw(COMPLETIONS, VALID[:-1] + b', "%s": %s}' % (field.encode(), deep))
    assert answer.status == status
    if status == 400:
        assert answer.json()["error"]["code"] == "invalid_type"


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (b"\\u0000", "\x00"),
        (b"\\ud83d\\ude00", "😀"),
        (b"\\u2028\\/\\n", "\u2028/\n"),
        ("😀".encode(), "😀"),
    ],
)
async def test_escapes_mean_the_character(start: StartApi, escaped: bytes, text: str) -> None:
    bench = await start("ok")
    assert (await bench.post_raw(COMPLETIONS, VALID.replace(b"Once", escaped))).status == 200
    assert bench.prompts() == [tuple(text.encode())]


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8;odata=verbose",
        "Application/JSON",
        "application/vnd.api+json",
        "application/problem+json; charset=utf-8",
    ],
)
async def test_these_content_types_are_json(start: StartApi, content_type: str) -> None:
    bench = await start("ok")
    headers = {"Content-Type": content_type}
    answer = await bench.ask("POST", COMPLETIONS, data=VALID, headers=headers)
    assert answer.texts() == ["ok"]


@pytest.mark.row("S-N-001")
@pytest.mark.case(50)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "application/json+x",
        "json",
        "x/y+json",
    ],
)
async def test_any_other_content_type_is_400(
    start: StartApi, path: str, content_type: str | None
) -> None:
    """Case 50: curl's default content type gave a 500."""
    bench = await start("ok")
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = await bench.ask("POST", path, data=VALID, headers=headers)
    message = "Invalid request: Content-Type must be application/json"
    check_error(answer, 400, message, code="unsupported_media_type")


@pytest.mark.row("S-N-002", "S-N-028")
async def test_a_body_is_read_up_to_the_limit_and_not_beyond(start: StartApi) -> None:
    bench = await start("ok", max_request_bytes=100)
    padded = VALID + b" " * (100 - len(VALID))
    assert (await bench.post_raw(COMPLETIONS, padded)).texts() == ["ok"]
    answer = await bench.post_raw(COMPLETIONS, padded + b" ")
    message = "The request body is larger than 100 bytes."
    check_error(answer, 413, message, code="request_too_large")
    assert answer.headers["connection"] == "close"
    # The content type comes later in the order of checks.
    answer = await bench.ask("POST", COMPLETIONS, data=padded * 2)
    check_error(answer, 413, message, code="request_too_large")


async def test_a_megabyte_of_ordinary_text_in_any_string_is_no_accident(start: StartApi) -> None:
    bench = await start("ok")
    text = "č" * 500_000
    for fields, status in (
        ({"user": text}, 200),
        ({"unknown": text}, 200),
        ({"stop": [text]}, 200),
        ({"model": text}, 404),
        ({"prompt": text}, 400),
    ):
        answer = await bench.post(COMPLETIONS, **fields)
        assert answer.status == status, (fields.keys(), answer.body[:200])
        assert len(answer.body) < 1000
