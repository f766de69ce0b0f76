"""The page at `/docs`: everything that the document has, in one file that needs no other."""

import json
import shlex
from html.parser import HTMLParser

import pytest
import trio
from attrs import define, evolve, field

from tests.api.kit import JSON, StartApi
from tests.api.schema_kit import CASES, CONFIG, DOCUMENT, document, open_both
from trioserve.api.openapi.page import render_page

BASE = "http://test:1/"
PAGE = render_page(DOCUMENT, BASE)
VOID = {"meta", "link", "br", "img", "hr"}


@define
class _Reader(HTMLParser):
    """What a browser would see of the page, as far as these tests ask."""

    tags: list[tuple[str, dict[str, str | None]]] = field(factory=list)
    open: list[str] = field(factory=list)
    text: list[str] = field(factory=list)
    commands: list[str] = field(factory=list)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "pre":
            self.commands.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if "pre" in self.open:
            self.commands[-1] += data


def _read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader


def test_every_element_is_closed() -> None:
    assert _read(PAGE).open == []


def test_it_needs_nothing_from_elsewhere() -> None:
    reader = _read(PAGE)
    assert "script" not in dict(reader.tags)
    for tag, attributes in reader.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base"), tag
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        href = attributes.get("href") or "#"
        assert href.startswith("#") or href == "openapi.json", href
    style = PAGE[PAGE.index("<style>") : PAGE.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_every_link_within_it_leads_somewhere() -> None:
    reader = _read(PAGE)
    places = {attributes.get("id") for _, attributes in reader.tags}
    links = {attributes["href"] for tag, attributes in reader.tags if tag == "a"}
    assert len(links) > len(DOCUMENT["paths"])
    for link in links - {"openapi.json"}:
        assert link is not None
        assert link.removeprefix("#") in places


def test_it_has_every_path_field_and_refusal_of_the_document() -> None:
    text = "".join(_read(PAGE).text)
    for path in DOCUMENT["paths"]:
        assert path in text
    for case in CASES.values():
        for path in case.paths():
            assert path[-1] in text
            doc = case.field_schema(path).get("description", "").replace("`", "")
            assert doc in text, doc
    assert "best_of must be greater than or equal to n" in text
    for name in ("finish_reason", "text_offset", "total_tokens", "max_model_len"):
        assert name in text


async def test_its_commands_are_served(nursery: trio.Nursery) -> None:
    """A reader will copy them."""
    bench = await open_both(nursery)
    commands = _read(PAGE).commands
    assert len(commands) == sum(map(len, DOCUMENT["paths"].values()))
    for command in commands:
        name, *words = shlex.split(command)
        assert name == "curl"
        url = next(word for word in words if word.startswith(BASE))
        path = "/" + url.removeprefix(BASE).replace("{model_id}", "org/fake")
        body = words[words.index("-d") + 1] if "-d" in words else None
        method = words[words.index("-X") + 1] if "-X" in words else "POST" if body else "GET"
        data = body.encode() if body else None
        answer = await bench.api.ask(method, path, data=data, headers=JSON)
        assert answer.status == 200, (command, answer.body)


def test_with_a_key_its_commands_send_one() -> None:
    config = evolve(CONFIG, api_key=("hush-hush",))
    page = render_page(document(config), BASE)
    assert "hush" not in page
    for command in _read(page).commands:
        has_key = "Authorization: Bearer $TRIOSERVE_API_KEY" in command
        assert has_key == ("/health" not in command and "/metrics" not in command), command


@pytest.mark.parametrize("name", ["</pre><script>alert(1)</script>", "it's", 'a"b', "`x`"])
async def test_a_name_cannot_become_part_of_the_page(start: StartApi, name: str) -> None:
    bench = await start(served_model_name=(name,))
    answer = await bench.get("/docs")
    reader = _read(answer.body.decode())
    assert "script" not in dict(reader.tags)
    command = next(each for each in reader.commands if "/v1/completions" in each)
    body = json.loads(shlex.split(command)[-1])
    assert body["model"] == name


async def test_the_examples_go_to_the_host_that_was_asked(start: StartApi) -> None:
    bench = await start()
    headers = {"host": "models.example:81"}
    answer = await bench.ask("GET", "/docs", headers=headers)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert b"curl http://models.example:81/v1/completions" in answer.body
