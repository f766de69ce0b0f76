"""`docs/api-coverage.md`: each row of the API's checklist, and the tests that prove it.

    python -m tests.api_coverage

Tests name their rows in a marker, `@pytest.mark.row("S-C-016")`. The markers are read from the
source: collecting would import every client's test and its environment.
"""

import ast
import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/api-coverage.md"
CHECKLIST = ROOT / "tests/checklist.csv"

_HEAD = """# API coverage

The checklist of the HTTP contract, row by row, with the tests that prove each. Written by
`just api-coverage`; a test fails where this page is out of date.

C is `/v1/completions`, H is `/v1/chat/completions`, G is `/generate`, B is `/v1/embeddings`. P1 is
the founding scope, P2 what users of such servers expect, P3 comes later. A row that waits for
something says for what; until then its parameters are refused with 400 `unsupported_parameter` and
its paths answer 404.
"""


@frozen
class Row:
    """One row of the checklist."""

    id: str
    item: str
    priority: str
    later: str
    """What the row waits for; empty for one that works."""


def checklist() -> list[Row]:
    """All rows, in the contract's order."""
    with CHECKLIST.open(newline="", encoding="utf-8") as file:
        return [Row(**record) for record in csv.DictReader(file)]


def marked_tests() -> dict[str, list[str]]:
    """For each row named in a marker, the tests that name it, as `path::test`."""
    tests: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, rows in _marks(tree, ()):
            for row in dict.fromkeys(rows):
                tests[row].append(f"{path.relative_to(ROOT)}::{name}")
    return dict(tests)


def page() -> str:
    """The page's text."""
    tests = marked_tests()
    lines = [_HEAD, "| row | what | priority | proved by |", "|---|---|---|---|"]
    for row in checklist():
        proofs = "<br>".join(f"`{_short(name)}`" for name in tests.get(row.id, []))
        waits = f"waits for {row.later}" if row.later else ""
        cell = "<br>".join(filter(None, (waits, proofs)))
        lines.append(f"| {row.id} | {row.item} | {row.priority} | {cell} |")
    return "\n".join(lines) + "\n"


def _short(name: str) -> str:
    return name.removeprefix("tests/")


def _marks(tree: ast.AST, outer: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own = tuple(row for mark in node.decorator_list for row in _rows(mark))
            if isinstance(node, ast.ClassDef):
                yield from _marks(node, outer + own)
            elif node.name.startswith("test_"):
                yield node.name, outer + own


def _rows(decorator: ast.expr) -> list[str]:
    """Rows named by a marker, or by the marks of a parameter inside one."""
    return [
        ast.literal_eval(argument)
        for call in ast.walk(decorator)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.row"
        for argument in call.args
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
