"""How quickly a full server says no.

    just serve --max-running-requests 16 --max-queued-requests 0
    just bench overload --clients 16 --requests 200

Long streams take every running slot and keep the cores busy; meanwhile one client at a time asks
for more and is refused. The line tells the times from the first byte sent to the last received,
connection included, and how many were refused. The server must be started with limits that
`--clients` streams reach.
"""

from collections import Counter
from typing import Any

import click
import orjson
import trio
from attrs import frozen

from bench import summary
from bench.load import Endpoint, Load, Shape, first_model, make_prompts
from bench.wire import Connection, Target, WireError

REFUSED = 503


@frozen
class Options:
    """The command line."""

    url: str
    api_key: str | None
    model: str | None
    clients: int
    requests: int
    prompt_tokens: int
    interval: float
    settle: float
    seed: int
    label: str | None


async def ask(target: Target, path: str, body: bytes) -> tuple[int, float]:
    """One request on a connection of its own; its status and its time in seconds."""
    started_at = trio.current_time()
    connection = await Connection.open(target)
    try:
        await connection.send("POST", path, body)
        status = await connection.receive(lambda _: None)
    finally:
        await connection.drop()
    return status, trio.current_time() - started_at


async def measure(options: Options) -> dict[str, object]:
    """Fills the server, asks for more, and returns the result line. Raises WireError."""
    target = Target.parse(options.url, options.api_key)
    model = options.model or await first_model(target)
    # Longer than the measurement takes: the streams are left at its end.
    shape = Shape(model, Endpoint.COMPLETIONS, output_tokens=4096)
    prompts = await make_prompts(
        target, shape, num_tokens=options.prompt_tokens, num_shared_tokens=0, seed=options.seed
    )
    load = Load(target, shape, prompts, options.clients, iter(range(options.clients)), options.seed)
    statuses: Counter[int] = Counter()
    refused_s: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        body = shape.body(prompts.make(options.clients), max_tokens=1)
        # A request that came before the streams would take the slot of one of them.
        await trio.sleep(options.settle)
        for _ in range(options.requests):
            status, elapsed_s = await ask(target, shape.endpoint.path, body)
            statuses[status] += 1
            if status == REFUSED:
                refused_s.append(elapsed_s)
            await trio.sleep(options.interval)
        nursery.cancel_scope.cancel()
    return {
        "bench": "overload",
        "label": options.label,
        "commit": summary.commit(),
        "device": summary.device(),
        "seed": options.seed,
        "url": options.url,
        "model": model,
        "shape": {"clients": options.clients, "prompt_tokens": options.prompt_tokens},
        "requests": options.requests,
        "refused": statuses[REFUSED],
        "other": {str(status): n for status, n in statuses.items() if status != REFUSED},
        "refusal_ms": summary.percentiles_ms(refused_s),
    }


@click.command(help="Times the refusals of a server whose slots are all taken.")
@click.option("--url", default="http://127.0.0.1:30000", show_default=True)
@click.option("--api-key", envvar="OPENAI_API_KEY", help="Sent as a bearer token.")
@click.option("--model", help="Default: the first that the server lists.")
@click.option("--clients", default=16, show_default=True, type=click.IntRange(1))
@click.option("--requests", default=200, show_default=True, type=click.IntRange(1))
@click.option("--prompt-tokens", default=100, show_default=True, type=click.IntRange(1))
@click.option("--interval", default=0.02, show_default=True, type=click.FloatRange(0))
@click.option("--settle", default=5.0, help="Seconds for the streams to take their slots.")
@click.option("--seed", default=0, show_default=True)
@click.option("--label", help="Copied into the line: what was measured.")
def main(**options: Any) -> None:
    """Exit code 1 when nothing was refused."""
    try:
        line = trio.run(measure, Options(**options))
    except* WireError as group:
        raise click.ClickException(str(group.exceptions[0])) from group
    click.echo(orjson.dumps(line))
    if not line["refused"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
