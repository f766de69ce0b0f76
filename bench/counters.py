"""A server's own counters, read from its metrics, and what happened between two readings."""

from collections.abc import Mapping

from attrs import frozen
from prometheus_client.parser import text_string_to_metric_families

_PREFIX = "trioserve_"
_HELD = ("leased", "quarantined")


@frozen
class Histogram:
    """Observations by upper bound: `counts` is cumulative, as Prometheus writes it."""

    counts: Mapping[float, float]
    total: float

    @property
    def num(self) -> float:
        """Observations in all."""
        return self.counts.get(float("inf"), 0.0)

    def since(self, before: "Histogram") -> "Histogram":
        """What was observed after `before` was read."""
        counts = {
            bound: count - before.counts.get(bound, 0.0) for bound, count in self.counts.items()
        }
        return Histogram(counts, self.total - before.total)

    def at_most(self, percent: float) -> float | None:
        """The lowest bucket bound that covers `percent` of the observations; None of nothing."""
        if not self.num:
            return None
        wanted = self.num * percent / 100
        return next(bound for bound, count in sorted(self.counts.items()) if count >= wanted)

    def as_json(self, scale: float = 1.0) -> dict[str, float | None]:
        """Count, mean and bounds, multiplied by `scale`; a bound above every bucket is null."""

        def scaled(value: float | None) -> float | None:
            is_known = value is not None and value != float("inf")
            return round(value * scale, 3) if is_known and value is not None else None

        return {
            "count": self.num,
            "mean": scaled(self.total / self.num if self.num else None),
            "p50_at_most": scaled(self.at_most(50)),
            "p99_at_most": scaled(self.at_most(99)),
            "max_at_most": scaled(self.at_most(100)),
        }


@frozen
class Counters:
    """The server's metrics at one moment, by full sample name and labels."""

    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    @classmethod
    def parse(cls, text: str) -> "Counters":
        """Reads Prometheus' text form."""
        return cls(
            {
                (sample.name, frozenset(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
        )

    def total(self, name: str) -> float:
        """A counter or gauge, summed over its labels; 0 when it is not there."""
        wanted = _PREFIX + name
        return sum(value for (found, _), value in self.samples.items() if found == wanted)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """A counter or gauge by one label's value."""
        wanted = _PREFIX + name
        return {
            dict(labels)[label]: value
            for (found, labels), value in self.samples.items()
            if found == wanted and label in dict(labels)
        }

    def histogram(self, name: str) -> Histogram:
        """A histogram without labels of its own."""
        by_bound = self.by_label(f"{name}_bucket", "le")
        counts = {float(bound): count for bound, count in by_bound.items()}
        return Histogram(counts, self.total(f"{name}_sum"))

    @property
    def pages(self) -> dict[str, float]:
        """Pages by state."""
        return self.by_label("pages", "state")

    @property
    def is_idle(self) -> bool:
        """No request runs or waits, and no page waits for a step."""
        held = sum(self.pages.get(state, 0.0) for state in _HELD)
        return not (self.total("num_running_reqs") + self.total("num_queue_reqs") + held)


def report(before: Counters, after: Counters) -> dict[str, object]:
    """What happened between two readings of an idle server."""
    num_aborted = after.total("aborted_requests_total") - before.total("aborted_requests_total")
    num_wasted = after.total("wasted_tokens_total") - before.total("wasted_tokens_total")
    seconds, steps = (
        after.histogram(name).since(before.histogram(name))
        for name in ("cancel_to_free_seconds", "cancel_to_free_steps")
    )
    # Cached pages are as good as free: whoever needs one takes it.
    at_rest = [
        sum(count for state, count in counters.pages.items() if state not in _HELD)
        for counters in (before, after)
    ]
    return {
        "aborted": num_aborted,
        "cancel_to_free_ms": seconds.as_json(1000.0),
        "cancel_to_free_steps": steps.as_json(),
        "wasted_tokens": num_wasted,
        "wasted_tokens_per_cancel": round(num_wasted / num_aborted, 3) if num_aborted else None,
        "steps": after.total("steps_total") - before.total("steps_total"),
        "pages_before": before.pages,
        "pages_after": after.pages,
        "is_census_whole": before.is_idle and after.is_idle and at_rest[0] == at_rest[1] > 0,
    }
