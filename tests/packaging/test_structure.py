"""Rules of structured concurrency that no linter checks for us (case 25 of its kind)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "trioserve").rglob("*.py"))
_SCOPES = {"open_nursery", "CancelScope", "move_on_after", "move_on_at", "fail_after", "fail_at"}


def scopes_around_yields(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of each nursery or cancel scope that is open while a generator yields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith):
            names = {
                called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                for item in node.items
                for call in ast.walk(item.context_expr)
                if isinstance(call, ast.Call)
                for called in [call.func]
            }
            if names & _SCOPES and any(
                isinstance(inner, ast.Yield | ast.YieldFrom) for inner in own_nodes(node)
            ):
                yield node.lineno, ", ".join(sorted(names & _SCOPES))


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, but not those of functions defined inside."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from own_nodes(child)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_yields_inside_a_nursery_or_cancel_scope(source: Path) -> None:
    assert list(scopes_around_yields(ast.parse(source.read_text()))) == []


def test_the_rule_sees_what_it_forbids() -> None:
    guilty = "async def f():\n async with trio.open_nursery() as n:\n  yield n\n"
    innocent = "async def f():\n with trio.move_on_after(1):\n  g = lambda: (yield)\n yield g\n"
    assert list(scopes_around_yields(ast.parse(guilty))) == [(2, "open_nursery")]
    assert list(scopes_around_yields(ast.parse(innocent))) == []
