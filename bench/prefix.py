"""What a prefix cache saves, at cache sizes from far too small to ample; one JSON line a scenario.

    just bench prefix --output prefix.jsonl
    just bench prefix --output prefix.jsonl --sizes 1280,20480 -- --host-cache-bytes 1000000000
    just bench prefix --url http://127.0.0.1:8080 --scenarios chat

Without `--url` it starts a server of this checkout for each of `--sizes`, the tokens that its KV
pool holds; what comes after `--` goes to that server. `--output` adds the lines to a file and draws
all of that file's lines that have a size in an SVG of the same name.

The scenarios: `shared`, prefixes of 1,000 tokens in turn, each time with a new suffix of at most
16; `chat`, conversations in turn that resend their history at each turn; `fanout`, one prefix and
32 branches at once, every other one of which is left half-way. What the line says: `hit_rate` is
cached over all prompt tokens of the requests whose beginning had been sent before, as the server
tells it, null if it does not; those requests' time to first token is `warm_ttft_ms`, and
`cold_ttft_ms` is that of prompts as long that had nothing in common with any other; `ttft_ratio`
divides the medians. `tok_s` counts output tokens of warm requests that were not left.
"""

import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import STDOUT
from typing import Any

import click
import orjson
import trio
from attrs import asdict, frozen

from bench import summary
from bench.load import first_model
from bench.plot import Panel, svg
from bench.prefix_scenarios import SCENARIOS, Asker, Plan
from bench.wire import Target, WireError, fetch

DRAWN = {"hit_rate": "hit rate", "ttft_ratio": "warm / cold time to first token", "tok_s": "tok/s"}
START_S = 180.0


@frozen
class Options:
    """The command line, less the scenarios' plan."""

    url: str | None
    api_key: str | None
    model: str | None
    sizes: tuple[int, ...]
    scenarios: tuple[str, ...]
    output: Path | None
    label: str | None
    server_flags: tuple[str, ...]


@asynccontextmanager
async def serving(options: Options, size: int) -> AsyncIterator[Target]:
    """A server whose pool holds `size` tokens, which ends with the context."""
    with socket.socket() as probe:  # a port that nobody uses at the moment
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    target = Target.parse(f"http://127.0.0.1:{port}")
    flags = ["--port", str(port), "--max-total-tokens", str(size), *options.server_flags]
    with tempfile.TemporaryFile() as log:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "trioserve", "serve", *flags], stdout=log, stderr=STDOUT
        )
        try:
            await _wait_ready(target, process)
            yield target
        except WireError:
            log.seek(0)
            sys.stderr.buffer.write(log.read())
            raise
        finally:
            process.terminate()
            with trio.move_on_after(30, shield=True) as patience:
                await process.wait()
            if patience.cancelled_caught:
                process.kill()


async def _wait_ready(target: Target, process: trio.Process) -> None:
    with trio.move_on_after(START_S):
        while process.poll() is None:
            try:
                await fetch(target, "GET", "/health")
            except WireError:
                await trio.sleep(0.2)
            else:
                return
    raise WireError("the server did not start")


async def measure(
    target: Target, options: Options, plan: Plan, size: int | None
) -> AsyncIterator[dict[str, Any]]:
    """A result line for each scenario. Raises WireError."""
    model = options.model or await first_model(target)
    asker = await Asker.open(target, model, plan)
    for name in options.scenarios:
        figures = await SCENARIOS[name](asker)
        yield {
            "bench": "prefix",
            "scenario": name,
            "label": options.label,
            "commit": summary.commit(),
            "device": summary.device(),
            "model": model,
            "pool_tokens": size,
            "server_flags": list(options.server_flags),
            "shape": asdict(plan),
            **figures.as_json(),
        }


async def run(options: Options, plan: Plan) -> bool:
    """Measures, prints and writes; whether every scenario had an answer."""
    has_answers = True

    async def take(target: Target, size: int | None) -> None:
        nonlocal has_answers
        async for line in measure(target, options, plan, size):
            text = orjson.dumps(line)
            click.echo(text)
            has_answers = has_answers and line["tok_s"] not in {None, 0.0}
            if options.output is not None:
                with options.output.open("ab") as file:
                    file.write(text + b"\n")

    if options.url is not None:
        await take(Target.parse(options.url, options.api_key), None)
    for size in () if options.url is not None else options.sizes:
        async with serving(options, size) as target:
            await take(target, size)
    return has_answers


def draw(lines: Sequence[dict[str, Any]]) -> str:
    """The figures of `DRAWN` over the cache size; of lines that say the same, the last counts."""
    panels = []
    for figure, title in DRAWN.items():
        points: dict[str, dict[float, float]] = {}
        for line in lines:
            if line.get("pool_tokens") and line.get(figure) is not None:
                of_scenario = points.setdefault(line["scenario"], {})
                of_scenario[line["pool_tokens"]] = line[figure]
        panels.append(Panel(title, {name: list(found.items()) for name, found in points.items()}))
    return svg("Prefix cache", "tokens that the KV pool holds", panels)


def _numbers(_context: object, _parameter: object, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError as error:
        raise click.BadParameter("numbers with commas between them") from error


@click.command(help="What a prefix cache saves, at several cache sizes.")
@click.option("--url", help="A server that runs; without it one is started for each size.")
@click.option("--api-key", envvar="OPENAI_API_KEY", help="Sent as a bearer token.")
@click.option("--model", help="Default: the first that the server lists.")
@click.option("--sizes", default="1280,2560,5120,20480", show_default=True, callback=_numbers)
@click.option("--scenarios", multiple=True, type=click.Choice([*SCENARIOS]), default=[*SCENARIOS])
@click.option("--prefix-tokens", default=1000, show_default=True, type=click.IntRange(1))
@click.option("--suffix-tokens", default=16, show_default=True, type=click.IntRange(1))
@click.option("--output-tokens", default=16, show_default=True, type=click.IntRange(2))
@click.option("--prefixes", default=4, help="Prefixes, or conversations.", type=click.IntRange(1))
@click.option("--rounds", default=4, show_default=True, type=click.IntRange(1))
@click.option("--turns", default=5, show_default=True, type=click.IntRange(2))
@click.option("--branches", default=32, show_default=True, type=click.IntRange(2))
@click.option("--seed", default=0, show_default=True)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Lines go there.")
@click.option("--label", help="Copied into the line: what was measured.")
@click.argument("server_flags", nargs=-1)
def main(**given: Any) -> None:
    """Exit code 1 when a scenario had no answer."""
    plan = Plan(**{name: given.pop(name) for name in asdict(Plan(*[0] * 8))})
    options = Options(**given)
    try:
        has_answers = trio.run(run, options, plan)
    except WireError as error:
        raise click.ClickException(str(error)) from error
    if options.output is not None:
        lines = [orjson.loads(line) for line in options.output.read_bytes().splitlines()]
        options.output.with_suffix(".svg").write_text(draw(lines))
    if not has_answers:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
