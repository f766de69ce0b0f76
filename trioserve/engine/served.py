"""`ServedModel` and `ServedEmbedder`: loaded models as the engine sees them, and their names."""

from typing import Protocol

from attrs import frozen

from trioserve.core import ModelInfo, PageId
from trioserve.device.base import Step
from trioserve.errors import ModelNotFound
from trioserve.model.embedder_spec import Matryoshka
from trioserve.runner.embedding_plan import EmbeddingPlan
from trioserve.scheduler.plan import StepPlan
from trioserve.text.tokenizer import Tokenizer


class Runner(Protocol):
    """Turns plans into device work; keeps the pages' contents."""

    def stage(self, plan: StepPlan) -> Step:
        """Prepare the plan's inputs. Called on the event loop, so it must be quick."""


class PageMemory(Protocol):
    """The contents of the pages, all layers of one page as one block of bytes."""

    @property
    def dtype(self) -> str:
        """How the numbers in a block are to be read."""

    @property
    def layout(self) -> str:
        """Their order, with the number of layers, heads and dimensions."""

    def read(self, page_id: PageId) -> bytes:
        """A copy. Safe while steps run if no step writes to the page."""

    def write(self, page_id: PageId, block: bytes) -> None:
        """Fill the page. Safe while steps run if no step names the page. Any thread."""


@frozen
class ServedModel:
    """What a load yields: the runner, the tokenizer, and how large the pool is."""

    info: ModelInfo
    runner: Runner
    tokenizer: Tokenizer
    num_pages: int
    page_size: int
    max_step_tokens: int
    memory: PageMemory | None = None
    """The pages' contents, where they can be copied."""
    fingerprint: str = ""
    """Of the weights, where pages are kept beyond the process; see model/fingerprint.py."""


class EmbeddingRunner(Protocol):
    """Turns plans of texts into device work."""

    def stage(self, plan: EmbeddingPlan) -> Step:
        """Prepare the plan's inputs. Called on the event loop, so it must be quick.

        The step's result has the vector of row i in `readouts[i].vector`.
        """


@frozen
class ServedEmbedder:
    """What the load of an embedding model yields."""

    info: ModelInfo
    runner: EmbeddingRunner
    tokenizer: Tokenizer
    prompt: str
    """Put before each text, mostly empty."""
    size: int
    """Components of a vector."""
    matryoshka: Matryoshka | None
    """Which shorter vectors the model was made for, if any."""
    max_step_tokens: int
    """Tokens of one step, padding included; a longer text is a step of its own."""


@frozen
class NamedModel:
    """A model and the names under which clients reach it, the canonical one first."""

    names: tuple[str, ...]
    path: str
    """As configured; it is a name as well, which is not told."""
    info: ModelInfo

    def has_name(self, name: str) -> bool:
        """Whether `name` means this model, by a name or its path; spaces around it don't matter."""
        return name.strip() in (*self.names, self.path)


@frozen
class ModelDirectory:
    """Which model a name means; no two models share one."""

    models: tuple[NamedModel, ...]

    @property
    def primary(self) -> NamedModel:
        """The model of `--model-path`."""
        return self.models[0]

    def find(self, name: str) -> NamedModel:
        """By a name or by the model's path. Raises ModelNotFound."""
        for model in self.models:
            if model.has_name(name):
                return model
        raise ModelNotFound(name)
