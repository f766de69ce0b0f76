"""What `bench/prefix.py` asks of a server: prompts that begin alike, in three shapes of use."""

import random
from collections.abc import Awaitable, Callable, Sequence

import orjson
import trio
from attrs import define, field, frozen

from bench import summary
from bench.load import Endpoint, Shape, make_prompts
from bench.prompts import PromptMaker, Rate, text
from bench.wire import Connection, EventLines, Target, WireError

COLD_REQUESTS = 3
"""Prompts of the same length that nothing can be cached of, asked before all others."""


@define(eq=False)
class Answer:
    """One request as the client saw it."""

    ttft_s: float | None = None
    """From the first byte sent to the first event with text."""
    text: str = ""
    num_texts: int = 0
    has_left: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    """None if the server does not tell."""
    error: str | None = None


@frozen
class Plan:
    """How large the scenarios are; tokens are what the server counts, about."""

    prefix_tokens: int
    suffix_tokens: int
    output_tokens: int
    prefixes: int
    rounds: int
    turns: int
    branches: int
    seed: int


@define(eq=False)
class Asker:
    """Asks one server; made by `Asker.open`, which learns how the server counts."""

    target: Target
    model: str
    plan: Plan
    completion_rate: Rate
    chat_rate: Rate

    @classmethod
    async def open(cls, target: Target, model: str, plan: Plan) -> "Asker":
        """Raises WireError."""
        rates = []
        for endpoint in (Endpoint.COMPLETIONS, Endpoint.CHAT):
            shape = Shape(model, endpoint, plan.output_tokens)
            maker = await make_prompts(
                target, shape, num_tokens=1, num_shared_tokens=0, seed=plan.seed
            )
            rates.append(maker.rate)
        return cls(target, model, plan, *rates)

    def prompt(self, prefix: str, suffix: int) -> str:
        """A prompt whose beginning is a function of `prefix`, and its end of both."""
        plan = self.plan
        total = plan.prefix_tokens + plan.suffix_tokens
        seed = random.Random(f"{plan.seed} {prefix}").randrange(2**32)
        return PromptMaker(self.completion_rate, total, plan.prefix_tokens, seed).make(suffix)

    def message(self, name: str) -> str:
        """What a user says in one turn: the prefix' length shared out among the turns."""
        num_words = self.chat_rate.words_for(self.plan.prefix_tokens // self.plan.turns)
        return text(random.Random(f"{self.plan.seed} {name}"), num_words)

    async def complete(self, prompt: str, leave_after: int | None = None) -> Answer:
        """A completion; left after so many events with text, if that is given."""
        return await self._ask(Endpoint.COMPLETIONS, {"prompt": prompt}, leave_after)

    async def chat(self, messages: Sequence[dict[str, str]]) -> Answer:
        """A chat reply."""
        return await self._ask(Endpoint.CHAT, {"messages": messages}, None)

    async def _ask(
        self, endpoint: Endpoint, content: dict[str, object], leave_after: int | None
    ) -> Answer:
        body = {
            **content,
            "model": self.model,
            "max_tokens": self.plan.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_cached_tokens_details": True,
        }
        answer, leave, refusal = Answer(), trio.CancelScope(), bytearray()
        try:
            connection = await Connection.open(self.target)
            try:
                reader = _Reader(answer, leave, leave_after, trio.current_time())
                with leave:
                    await connection.send("POST", endpoint.path, orjson.dumps(body))
                    status = await connection.receive(lambda data: reader.feed(data, refusal))
                    if status != 200:
                        answer.error = f"{status}: {refusal[:300].decode(errors='replace')}"
            finally:
                await connection.drop()
        except WireError as error:
            answer.error = str(error)
        answer.has_left = leave.cancelled_caught
        return answer


@define(eq=False)
class _Reader:
    _answer: Answer
    _leave: trio.CancelScope
    _leave_after: int | None
    _sent_at: float
    _lines: EventLines = field(factory=EventLines)

    def feed(self, data: bytes, refusal: bytearray) -> None:
        if not self._answer.num_texts and len(refusal) < 2000:
            refusal += data
        for payload in self._lines.feed(data):
            if payload != b"[DONE]":
                self._take(orjson.loads(payload))

    def _take(self, event: dict[str, object]) -> None:
        answer = self._answer
        if "error" in event:
            answer.error = str(event["error"])
        usage = event.get("usage")
        if isinstance(usage, dict):
            answer.prompt_tokens = usage["prompt_tokens"]
            answer.completion_tokens = usage["completion_tokens"]
            answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices:
            return
        delta = choices[0].get("delta")
        piece = delta.get("content") if isinstance(delta, dict) else choices[0].get("text")
        if not piece:
            return
        if answer.ttft_s is None:
            answer.ttft_s = trio.current_time() - self._sent_at
        answer.text += piece
        answer.num_texts += 1
        if self._leave_after is not None and answer.num_texts >= self._leave_after:
            self._leave.cancel()


@define(eq=False)
class Figures:
    """What a scenario found. `warm` are the requests whose beginning was sent before."""

    cold: list[Answer] = field(factory=list)
    warm: list[Answer] = field(factory=list)
    warm_s: float = 0.0
    """How long the warm requests took, all of them."""

    def as_json(self) -> dict[str, object]:
        """The figures of a result line."""
        cold, warm = (
            [answer.ttft_s for answer in answers if answer.ttft_s is not None]
            for answers in (self.cold, self.warm)
        )
        slow, quick = summary.percentile(cold, 50), summary.percentile(warm, 50)
        told = [answer for answer in self.warm if answer.cached_tokens is not None]
        num_prompt = sum(answer.prompt_tokens for answer in told)
        num_cached = sum(answer.cached_tokens or 0 for answer in told)
        num_output = sum(answer.completion_tokens for answer in self.warm)
        errors = [answer.error for answer in (*self.cold, *self.warm) if answer.error]
        return {
            "requests": len(self.warm),
            "left": sum(answer.has_left for answer in self.warm),
            "failed": len(errors),
            "hit_rate": round(num_cached / num_prompt, 4) if num_prompt else None,
            "cold_ttft_ms": summary.percentiles_ms(cold),
            "warm_ttft_ms": summary.percentiles_ms(warm),
            "ttft_ratio": round(quick / slow, 4) if slow and quick is not None else None,
            "tok_s": round(num_output / self.warm_s, 2) if self.warm_s else None,
            "errors": list(dict.fromkeys(errors))[:3],
        }


async def shared(asker: Asker) -> Figures:
    """Some long prefixes in turn, each with a new short suffix at every turn."""
    figures = Figures()
    for number in range(COLD_REQUESTS):
        figures.cold.append(await asker.complete(asker.prompt(f"shared cold {number}", 0)))
    for number in range(asker.plan.rounds + 1):
        started_at = trio.current_time()
        answers = [
            await asker.complete(asker.prompt(f"shared {prefix}", number))
            for prefix in range(asker.plan.prefixes)
        ]
        if number:  # the first round is every prefix' first time
            figures.warm += answers
            figures.warm_s += trio.current_time() - started_at
    return figures


async def chat(asker: Asker) -> Figures:
    """Conversations in turn, each of which resends its history and adds a message.

    Cold is the last request of a conversation whose first message is another one.
    """
    figures = Figures()
    histories: list[list[dict[str, str]]] = [[] for _ in range(asker.plan.prefixes)]
    for turn in range(asker.plan.turns):
        started_at = trio.current_time()
        for number, history in enumerate(histories):
            message = asker.message(f"chat {number} {turn}")
            history.append({"role": "user", "content": message})
            answer = await asker.chat(history)
            history.append({"role": "assistant", "content": answer.text})
            if turn:
                figures.warm.append(answer)
        figures.warm_s += trio.current_time() - started_at if turn else 0.0
    for number, history in enumerate(histories[:COLD_REQUESTS]):
        first = {"role": "user", "content": asker.message(f"chat cold {number}")}
        figures.cold.append(await asker.chat([first, *history[1:-1]]))
    return figures


async def fanout(asker: Asker) -> Figures:
    """One prefix, then many branches at once; every other one is left half-way."""
    figures, plan = Figures(), asker.plan
    for number in range(COLD_REQUESTS):
        figures.cold.append(await asker.complete(asker.prompt(f"fanout cold {number}", 0)))
    await asker.complete(asker.prompt("fanout", -1))

    async def branch(number: int) -> None:
        leave_after = max(1, plan.output_tokens // 2) if number % 2 else None
        figures.warm.append(await asker.complete(asker.prompt("fanout", number), leave_after))

    started_at = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(plan.branches):
            nursery.start_soon(branch, number)
    figures.warm_s = trio.current_time() - started_at
    return figures


SCENARIOS: dict[str, Callable[[Asker], Awaitable[Figures]]] = {
    "shared": shared,
    "chat": chat,
    "fanout": fanout,
}
