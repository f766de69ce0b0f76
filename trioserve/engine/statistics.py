"""`EngineStatistics`: what the engine counts. Gauges are not kept: they are read when asked for."""

from collections import deque

from prometheus_client import CollectorRegistry, Counter, Histogram

_LATENCY_BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)


RATE_WINDOW_S = 5.0


class TokenRate:
    """Tokens a second over the last `RATE_WINDOW_S`; holds one entry a step."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque()

    def add(self, num_tokens: int, now: float) -> None:
        """One step committed `num_tokens`."""
        self._steps.append((now, num_tokens))
        self._forget(now)

    def per_second(self, now: float) -> float:
        """The rate now; falls to 0 while nothing is generated."""
        self._forget(now)
        return sum(num_tokens for _, num_tokens in self._steps) / RATE_WINDOW_S

    def _forget(self, now: float) -> None:
        while self._steps and self._steps[0][0] < now - RATE_WINDOW_S:
            self._steps.popleft()


class HitRate:
    """The share of the prompt tokens of all admitted sequences that were cached."""

    def __init__(self) -> None:
        self._num_prompt = 0
        self._num_cached = 0

    def add(self, num_prompt: int, num_cached: int) -> None:
        """One prompt was begun."""
        self._num_prompt += num_prompt
        self._num_cached += num_cached

    @property
    def share(self) -> float:
        """0 to 1, since the start; 0 before the first prompt."""
        return self._num_cached / self._num_prompt if self._num_prompt else 0.0


class EngineStatistics:
    """Counters and histograms of one engine, in a registry of their own (tests run several).

    Labels are bounded: never ids, keys, prompts or anything a client chose.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.throughput = TokenRate()
        self.hits = HitRate()
        self.steps = self._counter("steps", "Steps launched")
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of admitted requests")
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated and billed")
        self.cached_tokens = self._counter("cached_tokens", "Prompt tokens taken from the cache")
        self.wasted_tokens = self._counter(
            "wasted_tokens", "Tokens sampled and dropped: the request had ended or was preempted"
        )
        self.recomputed_tokens = self._counter(
            "recomputed_tokens", "Tokens computed again after a preemption"
        )
        self.rejected = self._counter("rejected_requests", "Requests refused for overload")
        self.aborted = Counter(
            "trioserve_aborted_requests",
            "Requests that ended before their last token, by reason",
            ["reason"],
            registry=self.registry,
        )
        self.cancel_to_free_s = self._histogram(
            "cancel_to_free_seconds", "From an abort to its pages being free", _LATENCY_BUCKETS_S
        )
        self.cancel_to_free_steps = self._histogram(
            "cancel_to_free_steps",
            "Steps that retired between an abort and its pages being free",
            (0.0, 1.0, 2.0, 3.0),
        )
        self.time_to_first_token_s = self._histogram(
            "time_to_first_token_seconds", "From admission to the first token", _LATENCY_BUCKETS_S
        )
        self.inter_token_s = self._histogram(
            "inter_token_latency_seconds", "Between two tokens of a choice", _LATENCY_BUCKETS_S
        )
        self.e2e_s = self._histogram(
            "e2e_request_latency_seconds", "From admission to the end", _LATENCY_BUCKETS_S
        )
        self.queue_s = self._histogram(
            "queue_time_seconds", "From admission to the first step", _LATENCY_BUCKETS_S
        )

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"trioserve_{name}", text, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"trioserve_{name}", text, buckets=buckets, registry=self.registry)
