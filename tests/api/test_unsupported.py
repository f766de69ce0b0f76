"""Parameters that the contract knows and this version does not build, and those without effect."""

from typing import Any

import pytest

from tests.api.answers import check_error
from tests.api.kit import CHAT, ENDPOINTS, StartApi

# Name, values that ask for nothing (null always is one), and values that ask for something.
BOTH: list[tuple[str, list[Any], list[Any]]] = [
    ("return_token_ids", [False], [True]),
    ("return_prompt_token_ids", [False], [True]),
    ("modalities", [[], ["text"], ["text", "text"]], [["text", "audio"], ["audio"], "audio", [1]]),
    ("audio", [], [{"voice": "alloy"}]),
    ("functions", [], [[{"name": "f"}], []]),
    ("function_call", [], ["auto", {"name": "f"}]),
    ("web_search_options", [], [{}]),
    ("input_embeds", [], [[[0.1]]]),
    ("custom_logit_processor", [], ["code"]),
    ("use_beam_search", [False], [True, 1]),
    ("moderation", [], ["auto", False]),
]
ON_CHAT: list[tuple[str, list[Any], list[Any]]] = [
    ("return_meta_info", [False], [True]),
    ("input_ids", [], [[1, 2]]),
]
NEVER_ON_CHAT: list[tuple[str, list[Any], list[Any]]] = [
    ("echo", [False], [True, 0, "yes"]),
    ("suffix", [""], ["end", 5]),
    ("best_of", [1, 1.0], [2, 0, -1, 129, 10**9]),
]

CASES = [
    *((path, *row) for path in ENDPOINTS for row in BOTH),
    *((CHAT, *row) for row in (*ON_CHAT, *NEVER_ON_CHAT)),
]


@pytest.mark.row("S-C-019", "S-N-001", "S-H-042")
@pytest.mark.case(34, 38, 56)
@pytest.mark.parametrize(("path", "name", "harmless", "asking"), CASES)
async def test_a_parameter_not_built_accepts_its_default_and_nothing_else(
    start: StartApi, path: str, name: str, harmless: list[Any], asking: list[Any]
) -> None:
    """Cases 34, 38 and 56: known parameters are never ignored, and defaults never refused."""
    bench = await start("ok")
    for value in (None, *harmless):
        answer = await bench.post(path, **{name: value})
        assert answer.texts() == ["ok"], value
    num_plans = len(bench.runner.plans)
    is_never = path == CHAT and name in {row[0] for row in NEVER_ON_CHAT}
    detail = (
        "is not supported on chat completions"
        if is_never
        else "is not supported by this server version; leave it out"
    )
    for value in asking:
        answer = await bench.post(path, **{name: value})
        message = f"Invalid request: {name} {detail}"
        check_error(answer, 400, message, code="unsupported_parameter", param=name)
    assert len(bench.runner.plans) == num_plans


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_best_of_equal_to_n_asks_for_nothing(start: StartApi, path: str) -> None:
    bench = await start("ok")
    assert (await bench.post(path, n=2, best_of=2)).texts() == ["ok", "ok"]


async def test_chat_refuses_a_best_of_other_than_n(start: StartApi) -> None:
    bench = await start("ok")
    for value in (1, 3):
        answer = await bench.post(CHAT, n=2, best_of=value)
        message = "Invalid request: best_of is not supported on chat completions"
        check_error(answer, 400, message, code="unsupported_parameter", param="best_of")
    answer = await bench.post(CHAT, best_of="1")
    message = "Invalid request: best_of must be an integer"
    check_error(answer, 400, message, code="invalid_type", param="best_of")


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_an_adapter_is_refused_as_unavailable(start: StartApi, path: str) -> None:
    bench = await start("ok")
    for value in (None, [], [None], [None, None]):
        assert (await bench.post(path, lora_path=value)).status == 200, value
    message = (
        "Invalid request: LoRA is not enabled; start the server with --enable-lora or --lora-paths"
    )
    for value in ("adapter", ["adapter"], [None, "adapter"], 5, ""):
        answer = await bench.post(path, lora_path=value)
        check_error(answer, 400, message, code="lora_not_available", param="lora_path")


WITHOUT_EFFECT: list[tuple[str, Any, Any, str]] = [
    *(
        (name, "any", 5, "a string")
        for name in (
            *("user", "service_tier", "safety_identifier", "prompt_cache_key", "session_id"),
            *("prompt_cache_retention", "verbosity"),
        )
    ),
    *(
        (name, {"a": [1]}, "a", "an object")
        for name in ("metadata", "prompt_cache_options", "prediction", "custom_labels")
    ),
    *(
        (name, 3.0, "3", "an integer")
        for name in ("priority", "routed_dp_rank", "data_parallel_rank")
    ),
    *((name, True, 1, "a boolean") for name in ("store", "return_routed_experts")),
]
WITHOUT_EFFECT_ON_CHAT: list[tuple[str, Any, Any, str]] = [
    # They say how to do what these requests and this server do not do at all.
    (name, False, "false", "a boolean")
    for name in ("parallel_tool_calls", "separate_reasoning", "stream_reasoning")
]


@pytest.mark.parametrize(
    ("path", "name", "right", "wrong", "kind"),
    [
        *((path, *row) for path in ENDPOINTS for row in WITHOUT_EFFECT),
        *((CHAT, *row) for row in WITHOUT_EFFECT_ON_CHAT),
    ],
)
async def test_a_field_without_effect_takes_any_value_of_its_type(
    start: StartApi, path: str, name: str, right: Any, wrong: Any, kind: str
) -> None:
    bench = await start("ok")
    assert (await bench.post(path, **{name: right})).texts() == ["ok"]
    answer = await bench.post(path, **{name: wrong})
    message = f"Invalid request: {name} must be {kind}"
    check_error(answer, 400, message, code="invalid_type", param=name)


async def test_a_cache_salt_has_at_most_128_characters(start: StartApi) -> None:
    bench = await start("ok")
    assert (await bench.post(CHAT, cache_salt="č" * 128)).texts() == ["ok"]
    answer = await bench.post(CHAT, cache_salt="č" * 129)
    message = "Invalid request: cache_salt must have at most 128 characters"
    check_error(answer, 400, message, code="invalid_value", param="cache_salt")


@pytest.mark.row("S-N-001")
@pytest.mark.case(56)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "fields",
    [
        {"max_token": 3},
        {"extra_body": {"top_k": -5}},
        {"extra_key": ["a"], "bootstrap_host": "h", "bootstrap_room": [1], "bootstrap_port": None},
        {"stream_options": {"include_obfuscation": True, "unknown": {}}},
        {"": 1, "\x00": 1, "постой": {"a": [[[]]]}, "x" * 10_000: None},
    ],
)
async def test_an_unknown_field_is_ignored(
    start: StartApi, path: str, fields: dict[str, Any]
) -> None:
    bench = await start("ok")
    assert (await bench.post(path, **fields)).texts() == ["ok"]


async def test_an_unknown_field_is_logged_once_and_a_known_one_never(
    start: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trioserve.api.schema import ignored

    noted: list[str] = []
    monkeypatch.setattr(ignored, "log", _Log(noted))
    ignored._note.cache_clear()
    bench = await start("ok")
    known = {name: harmless[0] for _, name, harmless, _ in CASES if harmless}
    known |= {name: right for name, right, _, _ in (*WITHOUT_EFFECT, *WITHOUT_EFFECT_ON_CHAT)}
    for path in ENDPOINTS:
        for _ in range(2):
            await bench.post(path, max_token=3)
        answer = await bench.post(path, bootstrap_host="h", extra_key="k", temperature=1)
        assert answer.status == 200
    assert noted == ["max_token"]
    await bench.post(CHAT, **known, rid=None, lora_path=None)
    assert noted == ["max_token"]


class _Log:
    def __init__(self, noted: list[str]) -> None:
        self._noted = noted

    def debug(self, _event: str, *, field: str) -> None:
        self._noted.append(field)
