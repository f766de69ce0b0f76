"""Closed-loop streaming clients against any OpenAI-compatible server; prints one JSON line.

    just bench online --clients 16 --requests 96 --prompt-tokens 100 --output-tokens 64
    just bench online --url http://127.0.0.1:8080 --clients 8 --duration 60 --cancel-fraction 0.5
    just bench online --endpoint chat --prompt-tokens 1100 --shared-prefix-tokens 1000 --clients 1

What the line says: `tok_s` counts the output tokens of completed requests only, over the time from
the first request sent to the last one ended, so with `--cancel-fraction` it is goodput;
`received_tok_s` adds what cancelled requests had received. `ttft_ms` runs from the request's first
byte to the first event with text, `gap_ms` between two such events (a server may put several tokens
in one event), `tpot_ms` is (last text - first text) / (tokens - 1) of each completed request.
`health_ms` is the time of a `GET /health` on a connection of its own, asked for every
`--health-interval` seconds while the load runs.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import click
import orjson
import trio
from attrs import frozen

from bench import summary
from bench.load import Endpoint, Load, Outcome, Record, Shape, first_model, make_prompts
from bench.wire import Target, WireError, fetch


def report(records: Sequence[Record], elapsed_s: float) -> dict[str, object]:
    """The figures of a run; `elapsed_s` is the time that the tokens are divided by."""
    of = {outcome: [r for r in records if r.outcome is outcome] for outcome in Outcome}
    completed = of[Outcome.COMPLETED]
    num_tokens = sum(record.num_output_tokens for record in completed)
    num_left = sum(record.num_output_tokens for record in of[Outcome.CANCELLED])
    gaps = [
        after - before
        for record in completed
        for before, after in itertools.pairwise(record.text_times)
    ]
    answered = [record for record in completed if record.text_times]
    errors = [record.error for record in of[Outcome.FAILED] if record.error]
    return {
        "requests": {outcome.value: len(of[outcome]) for outcome in Outcome},
        "elapsed_s": round(elapsed_s, 3),
        "tok_s": round(num_tokens / elapsed_s, 2),
        "received_tok_s": round((num_tokens + num_left) / elapsed_s, 2),
        "output_tokens": num_tokens,
        "prompt_tokens_mean": _mean([r.prompt_tokens for r in completed if r.prompt_tokens]),
        "output_tokens_mean": _mean([r.num_output_tokens for r in completed]),
        "counted_by": _counted_by(completed),
        "ttft_ms": summary.percentiles_ms([r.text_times[0] - r.sent_at for r in answered]),
        "gap_ms": summary.percentiles_ms(gaps),
        "tpot_ms": summary.percentiles_ms(
            [
                (r.text_times[-1] - r.text_times[0]) / (r.num_output_tokens - 1)
                for r in answered
                if r.num_output_tokens > 1
            ]
        ),
        "request_ms": summary.percentiles_ms([r.ended_at - r.sent_at for r in completed]),
        "errors": list(dict.fromkeys(errors))[:3],
    }


def _mean(values: Sequence[int]) -> float | None:
    return round(sum(values) / len(values), 1) if values else None


def _counted_by(completed: Sequence[Record]) -> str:
    has_usage = all(record.completion_tokens is not None for record in completed)
    return "usage" if has_usage else "events"


def numbers_until(deadline: float, start: int) -> Iterator[int]:
    """Request numbers from `start`, as long as Trio's clock has not reached `deadline`."""
    return itertools.takewhile(lambda _: trio.current_time() < deadline, itertools.count(start))


async def probe_health(target: Target, interval_s: float, times_s: list[float]) -> None:
    """Asks for the health again and again until cancelled; adds each time to `times_s`."""
    while True:
        started_at = trio.current_time()
        await fetch(target, "GET", "/health")
        times_s.append(trio.current_time() - started_at)
        await trio.sleep(interval_s)


@frozen
class Options:
    """The command line."""

    url: str
    api_key: str | None
    model: str | None
    endpoint: str
    clients: int
    requests: int | None
    duration: float | None
    warmup: int | None
    prompt_tokens: int
    shared_prefix_tokens: int
    output_tokens: int
    cancel_fraction: float
    temperature: float
    ignore_eos: bool
    seed: int
    label: str | None
    device: str | None
    health_interval: float


async def measure(options: Options) -> dict[str, object]:
    """Warms the server up, runs the load and returns the result line. Raises WireError."""
    target = Target.parse(options.url, options.api_key)
    shape = Shape(
        model=options.model or await first_model(target),
        endpoint=Endpoint(options.endpoint),
        output_tokens=options.output_tokens,
        temperature=options.temperature,
        is_eos_ignored=options.ignore_eos,
    )
    prompts = await make_prompts(
        target,
        shape,
        num_tokens=options.prompt_tokens,
        num_shared_tokens=options.shared_prefix_tokens,
        seed=options.seed,
    )
    num_warmup = options.clients if options.warmup is None else options.warmup
    if num_warmup:
        numbers = iter(range(num_warmup))
        await Load(target, shape, prompts, options.clients, numbers, options.seed).run()
    started_at = trio.current_time()
    num_requests = options.requests or 4 * options.clients
    load = Load(
        target,
        shape,
        prompts,
        options.clients,
        # Numbers go on where the warm-up ended, so that no prompt is asked twice.
        numbers_until(started_at + options.duration, num_warmup)
        if options.duration
        else iter(range(num_warmup, num_warmup + num_requests)),
        options.seed,
        options.cancel_fraction,
    )
    health_s: list[float] = []
    async with trio.open_nursery() as nursery:
        if options.health_interval:
            nursery.start_soon(probe_health, target, options.health_interval, health_s)
        await load.run()
        elapsed_s = trio.current_time() - started_at
        nursery.cancel_scope.cancel()
    return {
        "bench": "online",
        "label": options.label,
        "commit": summary.commit(),
        "device": options.device or summary.device(),
        "seed": options.seed,
        "url": options.url,
        "model": shape.model,
        "shape": {
            "endpoint": options.endpoint,
            "clients": options.clients,
            "prompt_tokens": options.prompt_tokens,
            "shared_prefix_tokens": options.shared_prefix_tokens,
            "output_tokens": options.output_tokens,
            "cancel_fraction": options.cancel_fraction,
            "temperature": options.temperature,
            "ignore_eos": options.ignore_eos,
        },
        **report(load.records, elapsed_s),
        "health_ms": {"count": len(health_s), **summary.percentiles_ms(health_s)},
    }


@click.command(help="Closed-loop streaming clients against any OpenAI-compatible server.")
@click.option("--url", default="http://127.0.0.1:30000", show_default=True)
@click.option("--api-key", envvar="OPENAI_API_KEY", help="Sent as a bearer token.")
@click.option("--model", help="Default: the first that the server lists.")
@click.option("--endpoint", type=click.Choice([e.value for e in Endpoint]), default="completions")
@click.option("--clients", default=16, show_default=True, type=click.IntRange(1))
@click.option("--requests", type=click.IntRange(1), help="Default: 4 a client.")
@click.option("--duration", type=float, help="Seconds in which to send, instead of --requests.")
@click.option("--warmup", type=click.IntRange(0), help="Requests not counted; default 1 a client.")
@click.option("--prompt-tokens", default=100, show_default=True, type=click.IntRange(1))
@click.option("--shared-prefix-tokens", default=0, show_default=True, type=click.IntRange(0))
@click.option("--output-tokens", default=64, show_default=True, type=click.IntRange(1))
@click.option("--cancel-fraction", default=0.0, show_default=True, type=click.FloatRange(0, 1))
@click.option("--temperature", default=0.0, show_default=True)
@click.option("--ignore-eos/--stop-at-eos", default=True, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--label", help="Copied into the line: what was measured.")
@click.option("--device", help="The server's machine, when it is not this one.")
@click.option("--health-interval", default=0.0, show_default=True, type=click.FloatRange(0))
def main(**options: Any) -> None:
    """Exit code 1 when no request completed."""
    try:
        line = trio.run(measure, Options(**options))
    except WireError as error:
        raise click.ClickException(str(error)) from error
    click.echo(orjson.dumps(line))
    if not line["output_tokens"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
