"""What the HTTP tests share: an app over fakes, a client for it, and the answers it gives."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol
from urllib.parse import unquote

import orjson
import trio
import trio.testing
from attrs import define, evolve, field
from prometheus_client.parser import text_string_to_metric_families

from tests.api.answers import Answer
from trioserve.api.app import create_app
from trioserve.api.connection import ScopedApp
from trioserve.config import ServerConfig
from trioserve.core import SamplingParams
from trioserve.engine.engine import Engine
from trioserve.scheduler.plan import PlanRow
from trioserve.testing.fake_device import FakeDevice
from trioserve.testing.fake_model import FakeRunner, fake_model
from trioserve.testing.fake_readout import mask_ids
from trioserve.testing.fake_text import EOS_ID
from trioserve.testing.http import HttpResponse
from trioserve.testing.local_worker import LocalWorker
from trioserve.testing.memory_server import MemoryServer
from trioserve.text.tokenizer import Tokenizer

MODEL = "org/fake"
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
ENDPOINTS = (COMPLETIONS, CHAT)
JSON = {"Content-Type": "application/json"}
PROMPT = "Once"
MESSAGES = [{"role": "user", "content": "Hi"}]
RENDERED = "user: Hi\nassistant: "
"""MESSAGES in the fake model's template."""

Script = str | bytes | tuple[int, ...]


def body_for(path: str, **fields: Any) -> dict[str, Any]:
    """The smallest valid body of an endpoint, with more fields in or over it."""
    prompt = {"prompt": PROMPT} if path == COMPLETIONS else {"messages": MESSAGES}
    return {"model": MODEL, **prompt, **fields}


@define(eq=False)
class ScriptedRunner(FakeRunner):
    """Sample i says script i (the last one again for more), then only EOS; token ids are bytes."""

    scripts: tuple[Script, ...] = field(kw_only=True)

    def draw(self, row: PlanRow, prefix: tuple[int, ...]) -> int:
        """See FakeRunner; what was fed does not matter, unless the script's token is masked."""
        script = self.scripts[min(row.sample_index, len(self.scripts) - 1)]
        token_ids = script.encode() if isinstance(script, str) else script
        position = row.end - len(row.sequence.prompt_ids)
        token = token_ids[position] if position < len(token_ids) else EOS_ID
        open_ids = mask_ids(row)
        is_open = token not in row.masked_ids and (open_ids is None or token in open_ids)
        return token if is_open else super().draw(row, prefix)


@define
class ApiBench:
    """An app over an engine over fakes, which run in the test's nursery."""

    app: ScopedApp
    engine: Engine
    device: FakeDevice
    runner: FakeRunner
    wire: MemoryServer
    """For what only a connection shows; `ask` goes to the app without one."""

    async def ask(
        self,
        method: str,
        path: str,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request and its whole answer. The path may have a query."""
        path, _, query = path.partition("?")
        sent = {"host": "test", "content-length": str(len(data or b"")), **(headers or {})}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in sent.items()],
        }
        requests = [{"type": "http.request", "body": data or b"", "more_body": False}]
        messages: list[Any] = []

        async def receive() -> Any:
            return requests.pop() if requests else await trio.sleep_forever()

        async def send(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            messages.append(message)

        await self.app(scope, receive, send)  # type: ignore[arg-type]
        head, *bodies = messages
        received = {name.decode(): value.decode() for name, value in head["headers"]}
        return Answer(head["status"], received, b"".join(part["body"] for part in bodies))

    async def get(self, path: str) -> Answer:
        """A GET."""
        return await self.ask("GET", path)

    async def post(self, path: str, **fields: Any) -> Answer:
        """`body_for` these fields, posted."""
        return await self.ask(
            "POST", path, data=orjson.dumps(body_for(path, **fields)), headers=JSON
        )

    async def post_raw(self, path: str, data: bytes) -> Answer:
        """Any bytes, as JSON."""
        return await self.ask("POST", path, data=data, headers=JSON)

    async def wire_request(self, path: str, **fields: Any) -> HttpResponse:
        """Like `post`, over a connection, which is closed when the caller is cancelled."""
        async with self.wire.connect() as client:
            return await client.post_json(path, body_for(path, **fields))

    def first_row(self) -> PlanRow:
        """The first row that was ever planned."""
        return self.runner.plans[0].rows[0]

    def sampling(self) -> SamplingParams:
        """The parameters with which the first row was planned."""
        return self.first_row().sampling

    def prompts(self) -> list[tuple[int, ...]]:
        """The prompt of each sequence that was ever planned, in order of arrival."""
        rows = [row for plan in self.runner.plans for row in plan.rows]
        sequences = sorted({row.sequence for row in rows}, key=lambda held: held.id)
        return [sequence.prompt_ids for sequence in sequences]

    async def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """`/metrics`: name without its prefix, and labels without the model's, to value."""
        answer = await self.get("/metrics")
        assert answer.status == 200
        return {
            (
                sample.name.removeprefix("trioserve_"),
                frozenset((k, v) for k, v in sample.labels.items() if k != "model_name"),
            ): sample.value
            for family in text_string_to_metric_families(answer.body.decode())
            for sample in family.samples
        }

    async def metric(self, name: str, **labels: str) -> float:
        """One sample, 0 if there is none."""
        return (await self.samples()).get((name, frozenset(labels.items())), 0.0)

    def finish_all(self) -> None:
        """Let steps finish by themselves from now on."""
        self.device.is_automatic = True
        while self.device.unfinished:
            self.device.finish()

    async def finish_step(self) -> None:
        """Let the oldest step finish and everybody do what follows from it."""
        await self.device.wait_submitted()
        self.device.finish()
        await trio.testing.wait_all_tasks_blocked()

    def use_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Serve the same model with another tokenizer; its ids may go beyond the bytes."""
        model = self.engine.batch.model
        info = evolve(model.info, vocab_size=tokenizer.vocab_size)
        self.engine.batch.model = evolve(model, tokenizer=tokenizer, info=info)

    def check_idle(self) -> None:
        """Every page is free, or cached without a user, and nothing else is remembered."""
        batch = self.engine.batch
        batch.check()
        census = batch.pool.statistics()
        assert census.free + census.cached == census.total, census
        assert batch.scheduler.tree.num_unused == census.cached
        assert batch.is_idle
        assert not batch.streams


async def open_api(
    nursery: trio.Nursery,
    *scripts: Script,
    num_pages: int = 128,
    page_size: int = 4,
    max_model_len: int = 256,
    depth: int = 2,
    is_automatic: bool = True,
    poison: int | None = None,
    is_loaded: bool = True,
    **settings: Any,
) -> ApiBench:
    """An app whose engine runs in `nursery` and is ready, unless `is_loaded` is false.

    `scripts` are what the model says, `settings` those of the server.
    """
    device = FakeDevice(max_in_flight=depth, is_automatic=is_automatic)
    sizes: dict[str, Any] = {"num_pages": num_pages, "page_size": page_size, "poison": poison}
    runner = ScriptedRunner(**sizes, scripts=scripts) if scripts else FakeRunner(**sizes)
    engine = Engine(
        ServerConfig(**{"model_path": MODEL, **settings}),
        lambda _config: fake_model(runner, max_model_len=max_model_len),
        device,
        check_after_steps=True,
    )
    engine.grammars.start_worker = LocalWorker.start
    app = create_app(engine)
    if is_loaded:
        await nursery.start(engine.run)
        await engine.ready.wait()
    return ApiBench(app, engine, device, runner, MemoryServer(app, nursery))


class StartApi(Protocol):
    """`open_api` in the test's nursery."""

    def __call__(self, *scripts: Script, **settings: Any) -> Awaitable[ApiBench]: ...


async def in_parallel(*calls: Callable[[], Awaitable[Answer]]) -> list[Answer]:
    """All answers, in the order of the calls, which start in that order."""
    answers: dict[int, Answer] = {}

    async def run(index: int, call: Callable[[], Awaitable[Answer]]) -> None:
        answers[index] = await call()

    async with trio.open_nursery() as nursery:
        for index, call in enumerate(calls):
            nursery.start_soon(run, index, call)
            await trio.testing.wait_all_tasks_blocked()
    return [answers[index] for index in range(len(calls))]


def with_null(names: Iterable[str]) -> dict[str, None]:
    """Each name as an explicit null."""
    return dict.fromkeys(names)
