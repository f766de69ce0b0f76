"""Parameters that the contract knows and this version does not build, and those without effect."""

from typing import Any

import pytest

from tests.api.answers import check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, StartApi

# Name, values that ask for nothing (null always is one), and values that ask for something.
BOTH: list[tuple[str, list[Any], list[Any]]] = [
    ("min_tokens", [0], [1, "1"]),
    ("frequency_penalty", [0, 0.0], [0.5, -2, "0", False]),
    ("presence_penalty", [0, 0.0], [0.5, -2, "0", False]),
    ("repetition_penalty", [1, 1.0], [1.1, 0, True]),
    ("logit_bias", [{}], [{"5": 1}, []]),
    ("stop_token_ids", [[]], [[5], 5]),
    ("stop_regex", [[]], ["a", ["a"], ""]),
    ("no_stop_trim", [False], [True, 0]),
    ("skip_special_tokens", [True], [False, 1]),
    (
        "response_format",
        [{"type": "text"}, {"type": "text", "json_schema": None}],
        [{"type": "json_object"}, {"type": "json_schema", "json_schema": {}}, {"type": "xml"}, {}],
    ),
    ("json_schema", [], ["{}", {}]),
    ("regex", [], ["a+", ""]),
    ("ebnf", [], ["root ::= 'a'"]),
    ("return_hidden_states", [False], [True, "last"]),
    ("return_routed_experts", [False], [True]),
    ("return_cached_tokens_details", [False], [True]),
    ("return_token_ids", [False], [True]),
    ("return_prompt_token_ids", [False], [True]),
    ("cache_salt", [""], ["tenant"]),
    ("rid", [], ["job-1"]),
    ("modalities", [[], ["text"], ["text", "text"]], [["text", "audio"], ["audio"], "audio", [1]]),
    ("audio", [], [{"voice": "alloy"}]),
    ("functions", [], [[{"name": "f"}]]),
    ("function_call", [], ["auto", {"name": "f"}]),
    ("web_search_options", [], [{}]),
    ("input_embeds", [], [[[0.1]]]),
    ("custom_logit_processor", [], ["code"]),
    ("use_beam_search", [False], [True, 1]),
    ("moderation", [], ["auto", False]),
]
ON_COMPLETIONS: list[tuple[str, list[Any], list[Any]]] = [
    ("echo", [False], [True, 0]),
    # 0 asks for the sampled token's own logprob.
    ("logprobs", [], [0, 5, False]),
    ("best_of", [1, 1.0], [2, 0, True, "1"]),
    ("suffix", [""], ["end"]),
]
ON_CHAT: list[tuple[str, list[Any], list[Any]]] = [
    ("logprobs", [False], [True, 0]),
    ("top_logprobs", [0], [1, 25, -1, 10**9, True, False]),
    ("tools", [[]], [[{"type": "function", "function": {"name": "f"}}], {}]),
    ("tool_choice", ["none", "auto"], ["required", {"type": "function", "function": {}}]),
    ("parallel_tool_calls", [True, False], [1]),
    ("chat_template_kwargs", [{}], [{"enable_thinking": False}]),
    ("reasoning_effort", [], ["none", "high"]),
    ("continue_final_message", [False], [True]),
    ("separate_reasoning", [True], [False]),
    ("stream_reasoning", [True], [False]),
    ("return_meta_info", [False], [True]),
    ("input_ids", [], [[1, 2]]),
]
NEVER_ON_CHAT: list[tuple[str, list[Any], list[Any]]] = [
    ("echo", [False], [True]),
    ("suffix", [""], ["end"]),
    ("best_of", [1], [2]),
]

CASES = [
    *((path, *row) for path in ENDPOINTS for row in BOTH),
    *((COMPLETIONS, *row) for row in ON_COMPLETIONS),
    *((CHAT, *row) for row in (*ON_CHAT, *NEVER_ON_CHAT)),
]


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
    for value in (1, 3):
        answer = await bench.post(path, n=2, best_of=value)
        assert answer.status == 400
        assert answer.json()["param"] == "best_of"


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
    ("store", True, 1, "a boolean"),
]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("name", "right", "wrong", "kind"), WITHOUT_EFFECT)
async def test_a_field_without_effect_takes_any_value_of_its_type(
    start: StartApi, path: str, name: str, right: Any, wrong: Any, kind: str
) -> None:
    bench = await start("ok")
    assert (await bench.post(path, **{name: right})).texts() == ["ok"]
    answer = await bench.post(path, **{name: wrong})
    message = f"Invalid request: {name} must be {kind}"
    check_error(answer, 400, message, code="invalid_type", param=name)


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
    from trioserve.api import ignored

    noted: list[str] = []
    monkeypatch.setattr(ignored, "log", _Log(noted))
    ignored._note.cache_clear()
    bench = await start("ok")
    known = {name: harmless[0] for _, name, harmless, _ in CASES if harmless}
    known |= {name: right for name, right, _, _ in WITHOUT_EFFECT}
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
