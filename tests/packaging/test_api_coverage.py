"""Every row of the API's checklist is proved by a test, or says what it waits for."""

from tests.api_coverage import PAGE, checklist, marked_tests, page


def test_every_founding_row_that_does_not_wait_has_a_test() -> None:
    proved = marked_tests()
    open_rows = [row for row in checklist() if row.priority != "P3" and not row.later]
    assert [row.id for row in open_rows if row.id not in proved] == []


def test_markers_name_rows_of_the_checklist() -> None:
    known = {row.id for row in checklist()}
    assert {row: tests for row, tests in marked_tests().items() if row not in known} == {}


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `just api-coverage`"
