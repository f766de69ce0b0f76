"""`Patterns`: regular expressions that a client sends, compiled where they come in."""

import math
import re
from typing import Any

import regex  # type: ignore[import-untyped]
from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.kinds import JsonSchema, Kind, OneOrMore, Text
from trioserve.api.schema.limits import Limits

MAX_COST = 65_536
"""Nodes that the patterns of one request may compile to, as `cost_of` counts them: some tens of
milliseconds and megabytes at most."""

_LEAST_COUNT = re.compile(r"(.?)\{(\d+)", re.DOTALL)
_FULL_CASE = re.compile(r"\(\?[A-Za-z0-9-]*[fV]")
_FULL_CASE_FACTOR = 320


@frozen
class Patterns(Kind):
    """A pattern of the `regex` package or an array of them; read as texts that have compiled."""

    max_items: int
    max_chars: int

    def read(self, value: Any, name: str) -> tuple[str, ...]:
        """See Kind."""
        must = f"{name} is not a valid regular expression"
        patterns = self._texts(name).read(value, name)
        # Before the first is compiled: many small ones cost as much as a large one.
        if sum(map(cost_of, patterns)) > MAX_COST:
            raise invalid(f"{must}: it is too complex", name)
        for pattern in patterns:
            try:
                regex.compile(pattern)
            except RecursionError as error:
                raise invalid(f"{must}: it is nested too deeply", name) from error
            except Exception as error:  # whatever the package trips over, the pattern is at fault
                raise invalid(f"{must}: {error}", name) from error
        return patterns

    def json_schema(self, limits: Limits) -> JsonSchema:
        """See Kind. That a pattern compiles is more than a schema says."""
        return self._texts("").json_schema(limits)

    def _texts(self, name: str) -> OneOrMore:
        return OneOrMore(
            Text(
                empty=f"{name} is not a valid regular expression: it is empty",
                max_chars=self.max_chars,
            ),
            self.max_items,
            f"at most {self.max_items} {name} patterns are allowed",
        )


def cost_of(pattern: str) -> int:
    """No fewer than the nodes that the package compiles a pattern to.

    It copies what repeats as often as it must occur: `(?:a{999}){999}` takes gigabytes, and ends
    the process if there are none. So each character counts once, a repeated character or set as
    often as it repeats, and all of it as often as groups repeat, whether or not one is in another.
    What stands before a count tells the two apart: a group where that is in doubt.

    Rejected: walking the package's own parse tree, which is private and changes.
    """
    groups, atoms = [], len(pattern)
    for before, digits in _LEAST_COUNT.findall(pattern):
        # The package refuses counts beyond 32 bits itself; here they only must not be slow to read.
        count = max(1, int(digits[:12]))
        if before in ")}*+?" or before.isspace():
            groups.append(count)
        else:
            atoms += count
    cost = atoms * math.prod(groups)
    # With full case-folding a set may stand for a hundred strings.
    return cost * _FULL_CASE_FACTOR if "[" in pattern and _FULL_CASE.search(pattern) else cost
