"""`response_format`, `json_schema`, `regex` and `ebnf` on each endpoint: what comes out, and what
is refused before anything is computed."""

import json
import re
from typing import Any

import pytest
from attrs import evolve
from jsonschema import Draft202012Validator

from tests.api.answers import Answer, check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, JSON, ApiBench, StartApi
from trioserve.grammar.compiler import MAX_SOURCE_BYTES
from trioserve.testing.adversary import AdversarialRunner

GENERATE = "/generate"
ALL = (*ENDPOINTS, GENERATE)
USER = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
}
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "user", "schema": USER}}


async def ask(bench: ApiBench, path: str, max_tokens: int = 200, **fields: Any) -> Answer:
    """Greedy; on `/generate` the fields are those of `sampling_params`."""
    if path != GENERATE:
        return await bench.post(path, max_tokens=max_tokens, temperature=0, **fields)
    params = {"max_new_tokens": max_tokens, "temperature": 0, **fields}
    body = {"text": "Once", "sampling_params": params}
    return await bench.ask("POST", path, data=json.dumps(body).encode(), headers=JSON)


def result(path: str, answer: Answer) -> tuple[str, str, Any]:
    """Text, finish reason and matched stop."""
    if path != GENERATE:
        (choice,) = answer.joined()
        assert choice.finish is not None
        return choice.text, *choice.finish
    reply = answer.json()
    finish = reply["meta_info"]["finish_reason"]
    return reply["text"], finish["type"], finish.get("matched")


async def start_adversary(start: StartApi) -> ApiBench:
    """The fake model that takes the worst token."""
    bench = await start()
    old = bench.runner
    bench.runner = AdversarialRunner(old.num_pages, old.page_size)
    bench.engine.batch.model = evolve(bench.engine.batch.model, runner=bench.runner)
    return bench


@pytest.mark.row("S-C-020", "S-H-036")
@pytest.mark.case(80, 86)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_json_object_is_one_object_and_ends(start: StartApi, path: str) -> None:
    """Cases 80 and 86: a model that writes blanks as long as it may, and never an array."""
    bench = await start_adversary(start)
    for seed in range(3):
        answer = await ask(bench, path, response_format={"type": "json_object"}, seed=seed)
        text, reason, matched = result(path, answer)
        assert (reason, matched) == ("stop", None)
        assert isinstance(json.loads(text), dict)
        outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
        assert not re.search(r"\s\s", outside), text
    bench.check_idle()


@pytest.mark.row("S-C-021", "S-C-022", "S-H-031", "S-H-036")
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        *((path, {"response_format": SCHEMA_FORMAT}) for path in ENDPOINTS),
        *((path, {"json_schema": USER}) for path in ALL),
        *((path, {"json_schema": json.dumps(USER)}) for path in ALL),
    ],
)
async def test_a_schema_is_kept(start: StartApi, path: str, fields: dict[str, Any]) -> None:
    bench = await start_adversary(start)
    text, reason, matched = result(path, await ask(bench, path, **fields))
    assert (reason, matched) == ("stop", None)
    Draft202012Validator(USER).validate(json.loads(text))
    bench.check_idle()


@pytest.mark.row("S-C-023", "S-H-032")
@pytest.mark.case(82)
@pytest.mark.parametrize("path", ALL)
async def test_the_whole_text_matches_a_regex(start: StartApi, path: str) -> None:
    """Case 82: it ends with the pattern, although the model would go on."""
    bench = await start()
    text, reason, matched = result(path, await ask(bench, path, regex=r"\d{3}-\d{3}-\d{4}"))
    assert re.fullmatch(r"\d{3}-\d{3}-\d{4}", text)
    assert (reason, matched) == ("stop", None)


@pytest.mark.row("S-C-024", "S-H-036")
@pytest.mark.parametrize("path", ALL)
async def test_the_whole_text_derives_from_a_grammar(start: StartApi, path: str) -> None:
    bench = await start("they are yellow")
    grammar = 'root ::= colour ("," colour)*\ncolour ::= "red" | "blue"'
    text, *_ = result(path, await ask(bench, path, ebnf=grammar, max_tokens=40))
    assert re.fullmatch(r"(red|blue)(,(red|blue))*.*", text)


@pytest.mark.case(88)
async def test_a_schema_beside_its_type_is_read_on_chat_alone(start: StartApi) -> None:
    bench = await start()
    flat = {"type": "json_schema", "schema": {"const": 5}}
    assert (await ask(bench, CHAT, response_format=flat)).texts() == ["5"]
    message = "Invalid request: response_format.json_schema.schema is required"
    check_error(
        await ask(bench, COMPLETIONS, response_format=flat),
        400,
        message,
        code="missing_required_parameter",
        param="response_format",
    )


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_what_asks_for_nothing_changes_nothing(start: StartApi, path: str) -> None:
    bench = await start("free")
    nothing = dict.fromkeys(("json_schema", "regex", "ebnf"))
    for value in (None, {"type": "text"}, {"type": "text", "json_schema": None}):
        answer = await ask(bench, path, response_format=value, **nothing)
        assert answer.texts() == ["free"]
    assert bench.engine.grammars.num_compiled == 0


FORMAT_TYPE = "response_format.type must be one of text, json_object, json_schema"
ONLY_ONE = "only one of response_format, json_schema, regex, ebnf can be set"
NOT_JSON = "json_schema is not valid JSON: unexpected end of data: line 1 column 2 (char 1)"
TYPES = "null, boolean, object, array, number, string, integer"
SCHEMA, EBNF = "json_schema could not be compiled", "ebnf could not be compiled"
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": {"type": "xml"}}, FORMAT_TYPE, "response_format"),
    ({"response_format": {}}, FORMAT_TYPE, "response_format"),
    (
        {"response_format": {"type": "structural_tag"}},
        "response_format.type structural_tag is not supported by this server version",
        "response_format",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
        "response_format.json_schema.schema must be an object",
        "response_format.json_schema.schema",
    ),
    ({"response_format": {"type": "json_object"}, "regex": "a"}, ONLY_ONE, "response_format"),
    ({"json_schema": "{}", "ebnf": "root ::= root"}, ONLY_ONE, "response_format"),
    ({"json_schema": "{"}, NOT_JSON, "json_schema"),
    (
        {"json_schema": {"type": "strin"}},
        f"json_schema could not be compiled: type at # must be one of {TYPES}, or an array of them",
        "json_schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/nope"}}}},
        "json_schema could not be compiled: $ref at # leads nowhere",
        "response_format",
    ),
    (
        {"json_schema": {"properties": {"a/b": {"items": {"contains": {}}}}}},
        "json_schema could not be compiled: contains at #/properties/a~1b/items is not supported",
        "json_schema",
    ),
    (
        {"json_schema": {"type": "array", "uniqueItems": True}},
        "json_schema could not be compiled: uniqueItems at # is not supported",
        "json_schema",
    ),
    (
        {"json_schema": {"type": "string", "pattern": "(?=a)"}},
        f"{SCHEMA}: pattern at # cannot be enforced: lookahead is not supported at position 3",
        "json_schema",
    ),
    ({"regex": 5}, "regex must be a string", "regex"),
    ({"json_schema": 5}, "json_schema must be a string or an object", "json_schema"),
    ({"response_format": "json"}, "response_format must be an object", "response_format"),
    ({"regex": "("}, "regex could not be compiled: a missing ) at position 1", "regex"),
    ({"regex": ""}, "regex could not be compiled: it is empty", "regex"),
    (
        {"ebnf": "root ::= ("},
        f"{EBNF}: EBNF parser error at line 1, column 11: Expect element, but got the end",
        "ebnf",
    ),
    (
        {"ebnf": "start ::= 'a'"},
        f"{EBNF}: EBNF lexer error at line 1, column 11: Unexpected character: '",
        "ebnf",
    ),
    (
        {"ebnf": "\u00e9"},
        f"{EBNF}: EBNF lexer error at line 1, column 1: Unexpected character: \ufffd",
        "ebnf",
    ),
    ({"ebnf": "root ::= root"}, "ebnf could not be compiled: no text matches it", "ebnf"),
    (
        {"regex": "a" * (MAX_SOURCE_BYTES + 1)},
        "regex could not be compiled: grammar is too complex",
        "regex",
    ),
    (
        {"regex": "(" * 500 + ")" * 500},
        "regex could not be compiled: grammar is too complex",
        "regex",
    ),
]


@pytest.mark.row("S-N-001")
@pytest.mark.case(76, 77, 88)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "message", "param"), WRONG)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_what_cannot_be_enforced_is_a_400_before_any_byte(
    start: StartApi, path: str, fields: dict[str, Any], message: str, param: str, stream: bool
) -> None:
    """Cases 76, 77 and 88: nothing is computed, and the server goes on."""
    bench = await start("fine")
    answer = await ask(bench, path, stream=stream, **fields)
    assert answer.status == 400
    assert answer.json()["message"] == f"Invalid request: {message}"
    assert answer.json()["param"] == param
    assert not bench.runner.plans
    assert (await ask(bench, path)).texts() == ["fine"]
    bench.check_idle()


async def test_a_chat_with_a_schema_has_all_of_the_context(start: StartApi) -> None:
    """No max_tokens: 16 would cut a document, which is useless then."""
    bench = await start('{"name":"' + "Ann" * 20 + '","age":30}')
    answer = await bench.post(CHAT, response_format=SCHEMA_FORMAT)
    (choice,) = answer.joined()
    assert json.loads(choice.text) == {"name": "Ann" * 20, "age": 30}
    assert choice.finish == ("stop", None)
    short = await bench.post(COMPLETIONS, response_format=SCHEMA_FORMAT)
    (cut,) = short.joined()
    assert cut.finish == ("length", None)
    assert len(cut.text) == 16


async def test_each_prompt_of_generate_has_its_own_grammar(start: StartApi) -> None:
    bench = await start("zzz")
    params = [{"regex": "[ab]{2}"}, {}, {"json_schema": "true", "ebnf": None, "max_new_tokens": 3}]
    params[2]["json_schema"] = '{"const":7}'
    body = {"text": ["x", "y", "z"], "sampling_params": params}
    answer = await bench.ask("POST", GENERATE, data=json.dumps(body).encode(), headers=JSON)
    texts = [reply["text"] for reply in answer.json()]
    assert re.fullmatch("[ab]{2}", texts[0])
    assert texts[1:] == ["zzz", "7"]
