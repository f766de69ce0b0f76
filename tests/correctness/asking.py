"""An engine on the default model that is asked for numbers, whatever state its caches are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from tests.correctness.conftest import MAX_LEN, MAX_RUNNING
from tests.correctness.hashing import HashingRunner
from tests.correctness.plan_driver import GREEDY
from trioserve.config import ServerConfig
from trioserve.core import CacheNamespace, ModelInfo, ReadoutParams, StopParams, TokenLogprobs
from trioserve.device.cpu import CpuDevice
from trioserve.engine.engine import Engine
from trioserve.engine.request import GenerateRequest, Generation
from trioserve.engine.served import ServedModel
from trioserve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    import trio

    from tests.correctness.hashing import HashingDecoder

CHUNK = 32


@frozen
class Answer:
    """All that a request got, each number as it is."""

    output_ids: list[int]
    prompt_logprobs: tuple[TokenLogprobs, ...]
    output_logprobs: list[TokenLogprobs | None]
    logit_hashes: list[str]
    state: bytes
    num_cached: int = field(eq=False)


@frozen
class Server:
    """An engine on the default model, which asks itself."""

    engine: Engine
    runner: HashingRunner

    async def ask(
        self, prompt: tuple[int, ...], readout: ReadoutParams, num_output: int, *, is_shared: bool
    ) -> Answer:
        """One request to its end; one that shares nothing finds nothing and leaves nothing."""
        generation = Generation(
            prompt,
            num_output,
            GREEDY,
            StopParams(is_eos_ignored=True),
            readout,
            namespace=CacheNamespace() if is_shared else None,
        )
        deltas = []
        with self.engine.open_stream(GenerateRequest("test", (generation,), 1)) as stream:
            (choice,) = stream.choices
            while choice.finish is None or choice.has_news:
                deltas += await stream.receive()
            num_cached = stream.cached_tokens(0).total
            hashes = self.runner.hashes[choice.sequence]
        tokens = [token for delta in deltas for token in delta.tokens]
        (state,) = [d.hidden_state for d in deltas if d.hidden_state is not None]
        return Answer(
            [token.id for token in tokens],
            deltas[0].prompt_logprobs,
            [token.logprobs for token in tokens],
            hashes[-num_output:],
            state.tobytes(),
            num_cached,
        )


async def start_server(
    decoder: HashingDecoder,
    model_directory: Path,
    nursery: trio.Nursery,
    *,
    num_pages: int | None = None,
    step_tokens: int = CHUNK,
    **settings: Any,
) -> Server:
    """An engine in the nursery; fewer pages than the decoder has make them run short."""
    runner = HashingRunner(
        decoder, max_tokens=step_tokens + MAX_RUNNING, max_sequences=MAX_RUNNING, max_len=MAX_LEN
    )
    served = ServedModel(
        info=ModelInfo("model", "llama", ("LlamaForCausalLM",), "float16", 49_152, MAX_LEN),
        runner=runner,
        tokenizer=Tokenizer.from_directory(model_directory),
        num_pages=num_pages or decoder.pages.num_pages,
        page_size=decoder.pages.page_size,
        max_step_tokens=step_tokens,
        memory=decoder.pages,
        fingerprint="the default model",
    )
    config = ServerConfig(max_running_requests=MAX_RUNNING, **settings)
    engine = Engine(config, lambda _config: served, CpuDevice(), check_after_steps=True)
    await nursery.start(engine.run)
    await engine.ready.wait()
    return Server(engine, runner)
