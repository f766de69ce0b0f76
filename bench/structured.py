"""What structured output costs, and whom; prints one JSON line.

    just bench structured --clients 16 --rounds 3

`constrained_ratio` is the output tokens a second of requests with a JSON schema over those of free
ones, from rounds of both in turn (medians). Then the free load runs in as many rounds more, calm
and while `--compilations` schemas compile that take the server's whole `--grammar-timeout`, again
and again: `gap_ratio` has percentiles of the gaps between texts, the second over the first (the
median of the pairs), and `health_ms` the time of a `GET /health` meanwhile.
"""

import itertools
import json
from statistics import median
from typing import Any

import click
import orjson
import trio
from attrs import evolve, frozen

from bench import summary
from bench.load import Endpoint, Load, Record, Shape, first_model, make_prompts
from bench.online import probe_health, report
from bench.prompts import PromptMaker
from bench.wire import Connection, Target, WireError

# It cannot end before its limit: both kinds of request have the same number of tokens.
SCHEMA = {
    "type": "array",
    "items": {"type": "string", "maxLength": 60},
    "minItems": 1000,
}
NUM_PROPERTIES = 700
HEALTH_INTERVAL_S = 0.02


def pathological(number: int) -> str:
    """A schema whose grammar has a quarter of a million rules; each number is another one."""
    properties = {
        f"p{number}_{i}": {"type": "string", "pattern": f"a{{{i}}}b|c"}
        for i in range(NUM_PROPERTIES)
    }
    most = NUM_PROPERTIES // 2
    return json.dumps({"type": "object", "properties": properties, "maxProperties": most})


@frozen
class Options:
    """The command line."""

    url: str
    api_key: str | None
    clients: int
    requests: int
    rounds: int
    compilations: int
    prompt_tokens: int
    output_tokens: int
    seed: int
    label: str | None


@frozen
class Bench:
    """A server, and what it is asked."""

    target: Target
    shape: Shape
    prompts: PromptMaker
    options: Options
    numbers: "itertools.count[int]"
    """Of requests: no prompt is asked twice."""

    async def run(self, shape: Shape, num_requests: int) -> tuple[list[Record], float]:
        """One load, and how long it took."""
        numbers = itertools.islice(self.numbers, num_requests)
        options = self.options
        load = Load(self.target, shape, self.prompts, options.clients, numbers, options.seed)
        started_at = trio.current_time()
        await load.run()
        return load.records, trio.current_time() - started_at

    async def watched(self, num_compilations: int) -> dict[str, Any]:
        """The free load, with the health asked for and grammars compiled beside it."""
        health_s: list[float] = []
        refused: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(probe_health, self.target, HEALTH_INTERVAL_S, health_s)
            for index in range(num_compilations):
                nursery.start_soon(self._compile, index, refused)
            records, elapsed_s = await self.run(self.shape, self.options.requests)
            nursery.cancel_scope.cancel()
        figures = report(records, elapsed_s)
        return {
            "tok_s": figures["tok_s"],
            "gap_ms": figures["gap_ms"],
            "health_ms": {"count": len(health_s), **summary.percentiles_ms(health_s)},
            "refused": len(refused),
        }

    async def _compile(self, index: int, refused: list[int]) -> None:
        """Have one grammar after the other compiled until cancelled; all are to be refused."""
        for number in itertools.count():
            schema = pathological(1000 * index + number)
            asked = evolve(self.shape, more={"json_schema": schema})
            connection = await Connection.open(self.target)
            try:
                await connection.send(
                    "POST", self.shape.endpoint.path, asked.body("x", is_streamed=False)
                )
                status = await connection.receive(lambda _: None)
            finally:
                await connection.drop()
            if status != 400:
                raise WireError(f"a pathological schema was answered with {status}")
            refused.append(number)


async def measure(options: Options) -> dict[str, object]:
    """All rounds. Raises WireError."""
    target = Target.parse(options.url, options.api_key)
    shape = Shape(await first_model(target), Endpoint.COMPLETIONS, options.output_tokens)
    prompts = await make_prompts(
        target, shape, num_tokens=options.prompt_tokens, num_shared_tokens=0, seed=options.seed
    )
    bench = Bench(target, shape, prompts, options, itertools.count())
    constrained = evolve(shape, more={"json_schema": SCHEMA})
    rates: dict[str, list[float]] = {"free": [], "constrained": []}
    for round_number in range(options.rounds + 1):
        for name, each in (("free", shape), ("constrained", constrained)):
            records, elapsed_s = await bench.run(each, options.requests)
            figures = report(records, elapsed_s)
            if figures["errors"]:
                raise WireError(str(figures["errors"]))
            if round_number:  # the first one warms up, and compiles
                rates[name].append(float(str(figures["tok_s"])))
    calm: list[dict[str, Any]] = []
    compiling: list[dict[str, Any]] = []
    for _ in range(options.rounds):
        calm.append(await bench.watched(0))
        compiling.append(await bench.watched(options.compilations))
    medians = {name: median(values) for name, values in rates.items()}
    return {
        "bench": "structured",
        "label": options.label,
        "commit": summary.commit(),
        "device": summary.device(),
        "seed": options.seed,
        "model": shape.model,
        "shape": {
            "clients": options.clients,
            "requests": options.requests,
            "rounds": options.rounds,
            "prompt_tokens": options.prompt_tokens,
            "output_tokens": options.output_tokens,
            "compilations": options.compilations,
        },
        "free_tok_s": medians["free"],
        "constrained_tok_s": medians["constrained"],
        "constrained_ratio": round(medians["constrained"] / medians["free"], 3),
        "calm": calm,
        "compiling": compiling,
        "gap_ratio": {name: _ratio(name, compiling, calm) for name in ("p50", "p90", "p99")},
    }


def _ratio(name: str, some: list[dict[str, Any]], bases: list[dict[str, Any]]) -> float | None:
    """A percentile of the gaps in the one over that in the other, the median of the pairs."""
    pairs = [
        (each["gap_ms"][name], base["gap_ms"][name]) for each, base in zip(some, bases, strict=True)
    ]
    if any(base is None for _, base in pairs):
        return None
    return round(float(median(value / base for value, base in pairs)), 3)


@click.command(help="Requests with a JSON schema beside free ones, and beside a compilation.")
@click.option("--url", default="http://127.0.0.1:30000", show_default=True)
@click.option("--api-key", envvar="OPENAI_API_KEY", help="Sent as a bearer token.")
@click.option("--clients", default=16, show_default=True, type=click.IntRange(1))
@click.option("--requests", default=64, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--compilations", default=2, show_default=True, type=click.IntRange(1))
@click.option("--prompt-tokens", default=100, show_default=True, type=click.IntRange(1))
@click.option("--output-tokens", default=64, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True)
@click.option("--label", help="Copied into the line: what was measured.")
def main(**options: Any) -> None:
    """Exit code 1 when the server answers as it should not."""
    try:
        line = trio.run(measure, Options(**options))
    except WireError as error:
        raise click.ClickException(str(error)) from error
    click.echo(orjson.dumps(line))


if __name__ == "__main__":
    main()
