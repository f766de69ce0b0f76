"""`ServedModel`: a loaded model as the engine sees it."""

from typing import Protocol

from attrs import frozen

from trioserve.core import ModelInfo
from trioserve.device.base import Step
from trioserve.scheduler.plan import StepPlan
from trioserve.text.tokenizer import Tokenizer


class Runner(Protocol):
    """Turns plans into device work; keeps the pages' contents."""

    def stage(self, plan: StepPlan) -> Step:
        """Prepare the plan's inputs. Called on the event loop, so it must be quick."""


@frozen
class ServedModel:
    """What a load yields: the runner, the tokenizer, and how large the pool is."""

    info: ModelInfo
    runner: Runner
    tokenizer: Tokenizer
    num_pages: int
    page_size: int
    max_step_tokens: int
