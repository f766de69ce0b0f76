"""`GET /metrics`: the engine's counters, and gauges computed when asked."""

from collections.abc import Iterator

import trio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from trioserve.api.information import load_of
from trioserve.engine.batch import Batch
from trioserve.engine.cache_tiers import CacheTiers
from trioserve.engine.embedding_batch import EmbeddingBatch
from trioserve.engine.engine import Engine

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class EngineCollector:
    """Adds the gauges, and each model's name as a label, to what the engine counts.

    An embedding model beside another one has figures of its own. `requests_total`, which counts
    what comes in over HTTP, names the server's own model, whichever the request named.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """All families. Called by prometheus_client."""
        families: dict[str, Metric] = {}
        for model_name, family in self._families():
            samples = [
                sample._replace(labels={**sample.labels, "model_name": model_name})
                for sample in family.samples
                # A time of creation for every counter says nothing and doubles the text.
                if not sample.name.endswith("_created")
            ]
            if family.name in families:
                families[family.name].samples += samples
            else:
                family.samples = samples
                families[family.name] = family
        yield from families.values()

    def _families(self) -> Iterator[tuple[str, Metric]]:
        """Every family of every model, with the model's name."""
        engine, config = self._engine, self._engine.config
        statistics = [(config.served_names[0], engine.statistics)]
        if engine.embedding_statistics is not engine.statistics:
            statistics.append((config.embedding_names[0], engine.embedding_statistics))
        for name, figures in statistics:
            for family in figures.registry.collect():
                yield name, family
        if engine.ready.is_set():
            for model, batch in zip(engine.directory.models, engine.batches, strict=True):
                for family in _gauges(batch):
                    yield model.names[0], family


def _gauges(batch: Batch | EmbeddingBatch) -> Iterator[Metric]:
    load, rate = load_of(batch), batch.statistics.throughput.per_second(trio.current_time())
    hits = batch.statistics.hits.share
    for name, text, value in (
        ("num_running_reqs", "Sequences in the batch", load.num_running),
        ("num_queue_reqs", "Sequences waiting", load.num_waiting),
        ("num_used_tokens", "Tokens held in pages", load.num_used_tokens),
        ("token_usage", "Share of the pool that is held", load.token_usage),
        ("cache_hit_rate", "Share of prompt tokens taken from the cache", hits),
        ("gen_throughput", "Tokens generated a second, over the last seconds", rate),
    ):
        yield GaugeMetricFamily(f"trioserve_{name}", text, value=value)
    if isinstance(batch, EmbeddingBatch):
        return
    census = batch.pool.statistics()
    pages = GaugeMetricFamily("trioserve_pages", "KV pages by state", labels=["state"])
    for state in ("free", "leased", "cached", "quarantined"):
        pages.add_metric([state], getattr(census, state))
    yield pages
    yield GaugeMetricFamily("trioserve_pages_total", "KV pages", value=census.total)
    if batch.tiers is not None:
        yield from _tiers(batch.tiers)


def _tiers(tiers: CacheTiers) -> Iterator[Metric]:
    pages = GaugeMetricFamily(
        "trioserve_cache_tier_pages", "Pages kept below the pool", labels=["tier"]
    )
    sizes = GaugeMetricFamily("trioserve_cache_tier_bytes", "Bytes they take", labels=["tier"])
    reads = CounterMetricFamily(
        "trioserve_cache_tier_reads", "Pages asked of a tier", labels=["tier", "result"]
    )
    for name, tier in (("host", tiers.host), ("storage", tiers.storage)):
        if tier is not None:
            held = tier.statistics()
            pages.add_metric([name], held.num_pages)
            sizes.add_metric([name], held.held_bytes)
            reads.add_metric([name, "hit"], held.hits)
            reads.add_metric([name, "miss"], held.misses)
    yield from (pages, sizes, reads)
    yield CounterMetricFamily(
        "trioserve_cache_pages_dropped",
        "Pages that were not written because writing did not keep up",
        value=tiers.num_dropped,
    )


def render_metrics(engine: Engine) -> bytes:
    """The exposition text. Takes a millisecond or two and no lock that the driver takes."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    return generate_latest(registry)
