"""The page about structured output says what is."""

from tests.grammar.report import PAGE, page


def test_the_page_is_up_to_date() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(), "run `python -m tests.grammar.report`"
