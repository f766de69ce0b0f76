"""`render_page`: the document as a page, made on the server, that needs nothing but itself."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import orjson
from attrs import frozen
from jinja2 import Environment, PackageLoader, StrictUndefined, Template, select_autoescape

from trioserve.api.openapi.document import EVENTS, REFUSALS_FOLLOW
from trioserve.api.openapi.operations import JSON
from trioserve.api.openapi.schema_text import describe_type, resolve
from trioserve.api.schema.declare import NOT_SERVED

Json = Mapping[str, Any]

PAGE_TYPE = "text/html; charset=utf-8"
# It fetches nothing and runs nothing, whatever the text on it says.
PAGE_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


@frozen
class Field:
    """One row of a table of fields."""

    name: str
    type: str
    default: str
    is_required: bool
    doc: str
    is_served: bool = True


@frozen
class Answer:
    """One status of an operation."""

    status: str
    doc: str
    types: tuple[str, ...]
    fields: tuple[Field, ...]
    event_fields: tuple[Field, ...]


@frozen
class Entry:
    """One operation, as the page shows it."""

    anchor: str
    method: str
    path: str
    summary: str
    doc: str
    refusals: str
    """A list, as descriptions write it."""
    parameters: tuple[Field, ...]
    body: tuple[Field, ...]
    answers: tuple[Answer, ...]
    curl: str


@frozen
class Section:
    """The operations of one tag."""

    name: str
    doc: str
    entries: tuple[Entry, ...]


def render_page(document: Json, base_url: str) -> str:
    """HTML for a document of ours. `base_url` is where the examples send their requests."""
    sections = [
        Section(tag["name"], tag["description"], tuple(_entries(document, tag["name"], base_url)))
        for tag in document["tags"]
    ]
    error = document["components"]["schemas"]["Error"]
    return _template().render(
        title=document["info"]["title"],
        version=document["info"]["version"],
        about=document["info"]["description"],
        sections=sections,
        error_fields=tuple(_fields(document, error)),
        has_keys="securitySchemes" in document["components"],
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("trioserve.api.openapi", "."),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja")


def _entries(document: Json, tag: str, base_url: str) -> Iterator[Entry]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if tag not in operation["tags"]:
                continue
            parameters = tuple(
                Field(
                    each["name"],
                    f"{describe_type(each['schema'])}, in the {each['in']}",
                    "",
                    each["required"],
                    each["description"],
                )
                for each in operation.get("parameters", ())
            )
            content = operation.get("requestBody", {}).get("content", {}).get(JSON)
            doc, _, refusals = operation.get("description", "").partition(REFUSALS_FOLLOW)
            yield Entry(
                operation["operationId"],
                method.upper(),
                path,
                operation["summary"],
                doc.strip(),
                refusals.strip(),
                parameters,
                () if content is None else tuple(_fields(document, content["schema"])),
                tuple(_answers(document, operation["responses"])),
                _curl(method.upper(), base_url.rstrip("/") + path, operation, content),
            )


def _answers(document: Json, responses: Json) -> Iterator[Answer]:
    for status, response in responses.items():
        content = response.get("content", {})
        # Every error has the same body, which has a section of its own.
        reply = content.get(JSON, {}).get("schema", {}) if status == "200" else {}
        event: Json = {}
        if EVENTS in content:
            data = content[EVENTS]["schema"]["properties"]["data"]
            event = data["contentSchema"]["anyOf"][0]
        yield Answer(
            status,
            response["description"],
            tuple(content),
            tuple(_fields(document, reply)),
            tuple(_fields(document, event)),
        )


def _fields(document: Json, schema: Json, inside: str = "") -> Iterator[Field]:
    """The members of an object, and of objects in it, by dotted names; `[]` is each element.

    Where there may be several kinds of object, a member is of all the types it has in any.
    """
    kinds = list(_objects(document, schema))
    names = dict.fromkeys(name for kind in kinds for name in kind["properties"])
    for name in names:
        members = [kind["properties"][name] for kind in kinds if name in kind["properties"]]
        resolved = [resolve(document, member) for member in members]
        default = resolved[0].get("default")
        yield Field(
            f"{inside}{name}",
            " or ".join(dict.fromkeys(map(describe_type, resolved))),
            "" if default is None else orjson.dumps(default).decode(),
            all(name in kind.get("required", ()) for kind in kinds),
            resolved[0].get("description", ""),
            NOT_SERVED not in resolved[0],
        )
        member, where = resolved[0], f"{inside}{name}"
        while member.get("items"):
            member, where = resolve(document, member["items"]), f"{where}[]"
        yield from _fields(document, member, f"{where}.")


def _objects(document: Json, schema: Json) -> Iterator[Json]:
    """The kinds of object that a value, or each element of an array, may be."""
    schema = resolve(document, schema)
    if "properties" in schema:
        yield schema
    for kind in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from _objects(document, kind)


def _curl(method: str, url: str, operation: Json, content: Json | None) -> str:
    lines = [f"curl {url}" if method in ("GET", "POST") else f"curl -X {method} {url}"]
    if operation["security"]:
        lines.append('-H "Authorization: Bearer $TRIOSERVE_API_KEY"')
    if content is not None:
        lines.append('-H "Content-Type: application/json"')
        body = orjson.dumps(content.get("example", {}), option=orjson.OPT_INDENT_2).decode()
        lines.append("-d '" + body.replace("'", "'\\''") + "'")
    return " \\\n  ".join(lines)
