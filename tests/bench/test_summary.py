import pytest

from bench.counters import Counters, Histogram
from bench.prompts import Rate
from bench.summary import percentile, percentiles_ms
from bench.wire import EventLines, Target


@pytest.mark.parametrize(("percent", "expected"), [(0, 1.0), (50, 2.5), (100, 4.0), (75, 3.25)])
def test_percentile_lies_between_the_nearest_ranks(percent: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], percent) == expected


def test_percentiles_of_nothing_are_null() -> None:
    assert percentiles_ms([]) == {"p50": None, "p90": None, "p99": None}


def test_histogram_bound_covers_the_wanted_part() -> None:
    histogram = Histogram({1.0: 50.0, 2.0: 99.0, float("inf"): 100.0}, total=150.0)
    assert (histogram.at_most(50), histogram.at_most(51)) == (1.0, 2.0)
    assert histogram.as_json()["max_at_most"] is None  # above every bucket


def test_counters_are_summed_over_their_labels() -> None:
    text = (
        '# TYPE trioserve_a_total counter\ntrioserve_a_total{x="1"} 2\ntrioserve_a_total{x="2"} 3\n'
    )
    counters = Counters.parse(text)
    assert counters.total("a_total") == 5.0
    assert counters.by_label("a_total", "x") == {"1": 2.0, "2": 3.0}
    assert counters.total("absent") == 0.0


def test_words_make_up_for_a_template() -> None:
    assert Rate(base=10.0, per_word=2.0).words_for(110) == 50


def test_events_are_cut_wherever_the_network_cuts() -> None:
    data = b": ping\n\ndata: {1}\r\n\r\ndata: {2}\n\ndata: [DONE]\n\n"
    lines = EventLines()
    whole = [payload for byte in data for payload in lines.feed(bytes([byte]))]
    assert whole == EventLines().feed(data) == [b"{1}", b"{2}", b"[DONE]"]


@pytest.mark.parametrize("url", ["http://host:1/v1", "host:1", "http://host:1/"])
def test_address_is_read_with_or_without_version(url: str) -> None:
    assert Target.parse(url) == Target("host", 1, False, "")


def test_address_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="not an http address"):
        Target.parse("ftp://host")
