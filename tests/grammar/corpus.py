"""The schemas that structured output is tried on, and what becomes of each.

`data/draft2020_12.jsonl` holds the groups of the official JSON Schema Test Suite's required tests
for draft 2020-12 as jsonschema 4.26.0 ships them (MIT, see `data/LICENSE`): keyword, description,
schema, and instances with whether they are valid. `data/written.jsonl` holds schemas of our own, as
tools and extraction tasks have them.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen

from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.grammar.errors import GrammarError
from trioserve.grammar.translate import translate

DATA = Path(__file__).parent / "data"
WRITTEN = "written here"


@frozen
class Case:
    """One schema."""

    keyword: str
    """The suite's file, or WRITTEN."""
    description: str
    schema: Any
    instances: tuple[tuple[Any, bool], ...]
    """Values, and whether they are valid."""

    @property
    def source(self) -> str:
        return json.dumps(self.schema)

    @property
    def refusal(self) -> str | None:
        """Why it is not supported; None if it is."""
        return _refusal(self.source)


@cache
def cases() -> tuple[Case, ...]:
    """All of them."""
    found = []
    for name in ("draft2020_12", "written"):
        for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            instances = tuple((value, is_valid) for value, is_valid in entry.get("tests", ()))
            keyword = entry.get("keyword", WRITTEN)
            found.append(Case(keyword, entry["description"], entry["schema"], instances))
    return tuple(found)


KEYWORDS = tuple(dict.fromkeys(case.keyword for case in cases()))


def cases_of(keyword: str) -> list[Case]:
    """Those of one file."""
    return [case for case in cases() if case.keyword == keyword]


@cache
def _refusal(source: str) -> str | None:
    try:
        translate(Constraint(GrammarKind.JSON_SCHEMA, source))
    except GrammarError as error:
        return error.detail
    return None
