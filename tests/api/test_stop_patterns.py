"""`stop_regex` where it comes in: what compiles is taken, and nothing stalls the server."""

import resource
from contextlib import suppress
from typing import Any

import pytest

from tests.api.answers import check_error
from tests.api.kit import COMPLETIONS, ENDPOINTS, StartApi
from trioserve.api.schema.patterns import MAX_COST, Patterns, cost_of
from trioserve.errors import RequestError

INVALID = "Invalid request: stop_regex is not a valid regular expression: "
PATTERNS = Patterns(max_items=16, max_chars=1024)


@pytest.mark.parametrize(
    "value",
    [
        "a+",
        ["a", "b"],
        [],
        [f"a{index}" for index in range(16)],
        "é" * 1024,
        r"\p{Lu}\p{Ll}+",  # beyond what `re` knows
        r"(?i)(?:end|stop){e<=1}",
        r"\d{3}-\d{3}-\d{4}",
        r"(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
        r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}",
        r"(?:\w+\s+){50}.{500}",
        r"\{{2}",
    ],
)
def test_a_pattern_that_compiles_is_taken_as_it_is(value: Any) -> None:
    patterns = (value,) if isinstance(value, str) else tuple(value)
    assert PATTERNS.read(value, "stop_regex") == patterns


@pytest.mark.row("S-C-036", "S-H-038")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ("", "it is empty"),
        (["a", ""], "it is empty"),
        ("(", "missing ) at position 1"),
        (["a", "[b"], "unterminated character set at position 2"),
        ("*", "nothing to repeat at position 0"),
        ("a{2}{3}", "multiple repeat at position 4"),
        (r"\1", "invalid group reference at position 2"),
        (r"\p{NoSuch}", "unknown property at position 10"),
        ("a{99999999999}", "repeat count too big at position 2"),
        ("(?a)(?u)", "ASCII, LOCALE and UNICODE flags are mutually incompatible"),
        ("(" * 512 + ")" * 512, "it is nested too deeply"),
        ("a{9999999}", "it is too complex"),
        ("(?:a{999}){999}", "it is too complex"),
        (["[ab]{9999}"] * 16, "it is too complex"),
    ],
)
async def test_a_pattern_that_does_not_compile_is_refused_with_the_reason(
    start: StartApi, path: str, value: Any, detail: str
) -> None:
    bench = await start("ok")
    answer = await bench.post(path, stop_regex=value)
    shown = "it is too complex" if detail.startswith("repeat count") else detail
    check_error(answer, 400, INVALID + shown, code="invalid_value", param="stop_regex")
    assert not bench.runner.plans


@pytest.mark.parametrize(
    ("value", "message", "code"),
    [
        ("a" * 1025, "stop_regex must have at most 1024 characters", "invalid_value"),
        (["a"] * 17, "at most 16 stop_regex patterns are allowed", "invalid_value"),
        (5, "stop_regex must be a string or an array", "invalid_type"),
        ({}, "stop_regex must be a string or an array", "invalid_type"),
    ],
)
async def test_patterns_have_limits(start: StartApi, value: Any, message: str, code: str) -> None:
    bench = await start("ok")
    answer = await bench.post(COMPLETIONS, stop_regex=value)
    check_error(answer, 400, f"Invalid request: {message}", code=code, param="stop_regex")


@pytest.mark.parametrize(
    ("pattern", "at_least"),
    [
        ("abc", 3),
        ("a{500}", 500),
        ("a{500,}", 500),
        ("a{500,900}?", 500),
        ("a{0,99999}", 1),  # what need not occur is not copied
        ("(?:ab){500}", 1000),
        ("(?:a{50}){50}", 2500),
        ("(?:(?:a{50}){50}){50}", 125_000),
        ("(?x)(?:a{50}) {50}", 2500),  # a count may stand apart from its group
        ("(?x)(?:a{50}) # )\n{50}", 2500),
        ("(?:a{50})(?#why){50}", 2500),
        ("[)]{500}", 500),
        (r"\){500}", 500),
        ("(?if)[a-ﬁ]{50}", 50 * 100),  # a set may stand for texts of several characters
        ("(?V1i)[a-ﬁ]{50}", 50 * 100),
    ],
)
def test_the_cost_of_a_pattern_is_never_too_low(pattern: str, at_least: int) -> None:
    assert cost_of(pattern) >= at_least


NASTY = [
    "(?:a{999}){999}{999}",
    "(?:(?:(?:(?:(?:a{99}){99}){99}){99}){99}){99}",
    "(?:" * 300 + "a" + "){9}" * 170,
    "a{4294967294}",
    "[ab]{65000}",
    "(?:" + "[ab]" * 250 + "){60}",
    "(?if)" + "[\0-\U0010ffff]" * 200,
    "(?if)(?:[\0-\U0010ffff]){200}",
    "(?V1i)" + "[\\p{L}--[a-z]]" * 60,
    "(?:" + r"\X" * 500 + "){64}",
    "(?i)[" + "\0-\U0010ffff" * 330 + "]",
    "(?:a|b|" * 140 + "c" + ")" * 140,
    "(?R)" * 250,
    "(?V1)" + "[a~~" * 170 + "b" + "]" * 170,
    "(?<=a*)" * 140,
    "(?:abc){e<=3}" * 70,
]


@pytest.mark.parametrize("pattern", NASTY, ids=range(len(NASTY)))
def test_a_nasty_pattern_takes_no_more_memory_than_its_cost_allows(pattern: str) -> None:
    """Unbounded, some take gigabytes and minutes, and some end the process."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for value in (pattern[:1024], [pattern[:1024]] * 16):
        with suppress(RequestError):
            assert PATTERNS.read(value, "stop_regex")
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert grown_kib < MAX_COST  # a KiB a node is more than any takes
