"""Clients that leave at random times; what that cost, read from the server's own counters.

    just bench cancel_storm --clients 16 --requests 500
    just bench cancel_storm --clients 8 --requests 200 --streamed-fraction 0 --prompt-tokens 1000

Every client asks, closes its connection after a time drawn evenly from 0 to `--max-delay`, and asks
again; by default the longest time is what an uncancelled request takes at the same load, so the
closes fall into the queue, prefill and decode alike. Half of the requests are not streamed: there
the server has nothing to write that could fail. Afterwards the line tells the steps and the
milliseconds from the server's noticing to the pages being free (from histograms: `p50_at_most` is
the upper bound of the bucket), the tokens computed for nobody, and whether the page census is what
it was. `close_to_free_ms` is the same seen from outside, with single requests to the idle server:
from the client's close to the first reading of the metrics that shows no page held.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import click
import orjson
import trio
from attrs import define, field, frozen

from bench import summary
from bench.counters import Counters, report
from bench.load import Endpoint, Shape, first_model, make_prompts
from bench.prompts import PromptMaker
from bench.wire import Connection, Target, WireError, fetch


@define(eq=False)
class Storm:
    """The clients. `max_delay_s` of None lets every request run to its end."""

    target: Target
    shape: Shape
    prompts: PromptMaker
    num_clients: int
    numbers: Iterator[int]
    seed: int
    streamed_fraction: float
    max_delay_s: float | None
    durations_s: list[float] = field(factory=list)
    """Of the requests that came to their end."""
    num_left: int = 0
    failures: list[str] = field(factory=list)

    async def run(self) -> None:
        """Returns when every client has left its last request."""
        async with trio.open_nursery() as nursery:
            for _ in range(self.num_clients):
                nursery.start_soon(self._run_client)

    async def _run_client(self) -> None:
        for number in self.numbers:
            rng = random.Random(f"storm {self.seed} {number}")
            is_streamed = rng.random() < self.streamed_fraction
            delay_s = float("inf")
            if self.max_delay_s is not None:
                delay_s = rng.uniform(0, self.max_delay_s)
            body = self.shape.body(self.prompts.make(number), is_streamed=is_streamed)
            try:
                taken_s = await ask(self.target, self.shape, body, delay_s)
            except WireError as error:
                self.failures.append(str(error))
            else:
                if taken_s is None:
                    self.num_left += 1
                else:
                    self.durations_s.append(taken_s)


async def ask(target: Target, shape: Shape, body: bytes, patience_s: float) -> float | None:
    """One request; the seconds it took, or None if we left after `patience_s`. Raises WireError."""
    parts: list[bytes] = []
    connection = await Connection.open(target)
    try:
        started_at = trio.current_time()
        with trio.move_on_after(patience_s) as patience:
            await connection.send("POST", shape.endpoint.path, body)
            status = await connection.receive(parts.append)
    finally:
        await connection.drop()
    if patience.cancelled_caught:
        return None
    if status != 200:
        raise WireError(f"{status}: {b''.join(parts)[:300].decode(errors='replace')}")
    return trio.current_time() - started_at


async def read_counters(target: Target) -> Counters:
    """The server's metrics now."""
    return Counters.parse((await fetch(target, "GET", "/metrics")).decode())


async def wait_idle(target: Target, limit_s: float, interval_s: float = 0.02) -> Counters:
    """The metrics once the server is idle, or as they are after `limit_s`."""
    counters = await read_counters(target)
    with trio.move_on_after(limit_s):
        while not counters.is_idle:
            # A poll: the server offers no way to be told.
            await trio.sleep(interval_s)
            counters = await read_counters(target)
    return counters


async def measure_close_to_free(
    target: Target, shape: Shape, bodies: Sequence[bytes], seed: int, limit_s: float
) -> list[float]:
    """Seconds from a client's close to no page being held, for one request after the other.

    The first body is asked to its end; the others are left after 10 to 90 % of that time. One that
    ended earlier tells nothing, nor does one whose pages are held for `limit_s`.
    """
    rng = random.Random(f"probe {seed}")
    times_s: list[float] = []
    whole_s = await ask(target, shape, bodies[0], float("inf"))
    assert whole_s is not None, "a request without a limit was left"
    for body in bodies[1:]:
        if await ask(target, shape, body, rng.uniform(0.1, 0.9) * whole_s) is None:
            closed_at = trio.current_time()
            if (await wait_idle(target, limit_s, interval_s=0.001)).is_idle:
                times_s.append(trio.current_time() - closed_at)
    return times_s


@frozen
class Options:
    """The command line."""

    url: str
    api_key: str | None
    model: str | None
    endpoint: str
    clients: int
    requests: int
    prompt_tokens: int
    output_tokens: int
    streamed_fraction: float
    max_delay: float | None
    probes: int
    settle: float
    seed: int
    label: str | None
    device: str | None


async def measure(options: Options) -> dict[str, object]:
    """Runs the storm between two readings and returns the result line. Raises WireError."""
    target = Target.parse(options.url, options.api_key)
    model = options.model or await first_model(target)
    shape = Shape(model, Endpoint(options.endpoint), options.output_tokens)
    prompts = await make_prompts(
        target,
        shape,
        num_tokens=options.prompt_tokens,
        num_shared_tokens=0,
        seed=options.seed,
    )

    def make_storm(numbers: range, max_delay_s: float | None) -> Storm:
        return Storm(
            target,
            shape,
            prompts,
            options.clients,
            iter(numbers),
            options.seed,
            options.streamed_fraction,
            max_delay_s,
        )

    calm = make_storm(range(options.clients), None)
    await calm.run()
    if not calm.durations_s:
        raise WireError(f"no request came to its end: {calm.failures[:1]}")
    max_delay_s = options.max_delay or sum(calm.durations_s) / len(calm.durations_s)
    before = await wait_idle(target, options.settle)
    storm = make_storm(range(options.clients, options.clients + options.requests), max_delay_s)
    started_at = trio.current_time()
    await storm.run()
    elapsed_s = trio.current_time() - started_at
    after = await wait_idle(target, options.settle)
    first = options.clients + options.requests
    bodies = [
        shape.body(prompts.make(number), is_streamed=number % 2 == 0)
        for number in range(first, first + options.probes + 1)
    ]
    closes_s = await measure_close_to_free(target, shape, bodies, options.seed, options.settle)
    return {
        "bench": "cancel_storm",
        "label": options.label,
        "commit": summary.commit(),
        "device": options.device or summary.device(),
        "seed": options.seed,
        "url": options.url,
        "model": model,
        "shape": {
            "endpoint": options.endpoint,
            "clients": options.clients,
            "requests": options.requests,
            "prompt_tokens": options.prompt_tokens,
            "output_tokens": options.output_tokens,
            "streamed_fraction": options.streamed_fraction,
            "max_delay_s": round(max_delay_s, 3),
        },
        "elapsed_s": round(elapsed_s, 3),
        "left": storm.num_left,
        "completed": len(storm.durations_s),
        "failed": len(storm.failures),
        "errors": list(dict.fromkeys(storm.failures))[:3],
        **report(before, after),
        "close_to_free_ms": {"count": len(closes_s), **summary.percentiles_ms(closes_s)},
    }


@click.command(help="Clients that leave at random times, and what that cost the server.")
@click.option("--url", default="http://127.0.0.1:30000", show_default=True)
@click.option("--api-key", envvar="OPENAI_API_KEY", help="Sent as a bearer token.")
@click.option("--model", help="Default: the first that the server lists.")
@click.option("--endpoint", type=click.Choice([e.value for e in Endpoint]), default="completions")
@click.option("--clients", default=16, show_default=True, type=click.IntRange(1))
@click.option("--requests", default=200, show_default=True, type=click.IntRange(1))
@click.option("--prompt-tokens", default=100, show_default=True, type=click.IntRange(1))
@click.option("--output-tokens", default=64, show_default=True, type=click.IntRange(1))
@click.option("--streamed-fraction", default=0.5, show_default=True, type=click.FloatRange(0, 1))
@click.option("--max-delay", type=float, help="Seconds; default: as long as a request takes.")
@click.option("--probes", default=20, show_default=True, help="Closes to time from outside.")
@click.option("--settle", default=30.0, show_default=True, help="Seconds to wait for idleness.")
@click.option("--seed", default=0, show_default=True)
@click.option("--label", help="Copied into the line: what was measured.")
@click.option("--device", help="The server's machine, when it is not this one.")
def main(**options: Any) -> None:
    """Exit code 1 when pages are missing afterwards."""
    try:
        line = trio.run(measure, Options(**options))
    except WireError as error:
        raise click.ClickException(str(error)) from error
    click.echo(orjson.dumps(line))
    if not line["is_census_whole"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
