"""`GET /metrics`: the engine's counters, and gauges computed when asked."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from trioserve.api.information import loads
from trioserve.engine.engine import Engine

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_GAUGES = {
    "num_running_reqs": "Sequences in the batch",
    "num_queue_reqs": "Sequences waiting",
    "num_used_tokens": "Tokens held in pages",
    "token_usage": "Share of the pool that is held",
    "cache_hit_rate": "Share of prompt tokens taken from the cache",
    "gen_throughput": "Tokens generated a second, over the last seconds",
}
_LOAD_NAMES = {"num_queue_reqs": "num_waiting_reqs"}


class EngineCollector:
    """Adds the gauges, and the model's name as a label, to what the engine counts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """All families. Called by prometheus_client."""
        name = self._engine.config.served_names[0]
        for family in (*self._engine.statistics.registry.collect(), *self._gauges()):
            family.samples = [
                sample._replace(labels={**sample.labels, "model_name": name})
                for sample in family.samples
                # A time of creation for every counter says nothing and doubles the text.
                if not sample.name.endswith("_created")
            ]
            yield family

    def _gauges(self) -> Iterator[Metric]:
        if not self._engine.ready.is_set():
            return
        (load,) = loads(self._engine)["loads"]
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(
                f"trioserve_{name}", text, value=load[_LOAD_NAMES.get(name, name)]
            )
        census = self._engine.batch.pool.statistics()
        pages = GaugeMetricFamily("trioserve_pages", "KV pages by state", labels=["state"])
        for state in ("free", "leased", "cached", "quarantined"):
            pages.add_metric([state], getattr(census, state))
        yield pages
        yield GaugeMetricFamily("trioserve_pages_total", "KV pages", value=census.total)


def render_metrics(engine: Engine) -> bytes:
    """The exposition text. Takes a millisecond or two and no lock that the driver takes."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    return generate_latest(registry)
