"""`FakeRunner`: a model without weights that reads its context through real page tables."""

from struct import pack, unpack

from attrs import define, field

from trioserve.core import ModelInfo
from trioserve.device.base import RowFailure, RowReadout, StepResult
from trioserve.engine.served import ServedModel
from trioserve.errors import RequestFailed
from trioserve.scheduler.plan import PlanRow, StepPlan
from trioserve.scheduler.sequence import Sequence
from trioserve.testing.fake_readout import (
    LETTERS,
    VOCAB_SIZE,
    allowed_tokens,
    fake_readout,
    next_token,
)
from trioserve.testing.fake_text import shared_byte_tokenizer

NO_TOKEN = -1


def continuation(
    prompt: tuple[int, ...],
    num_tokens: int,
    sample_index: int = 0,
    vocabulary: tuple[int, ...] = LETTERS,
) -> list[int]:
    """What an undisturbed sequence generates: the reference for every scheduling test."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(next_token(tuple(tokens), sample_index, vocabulary))
    return tokens[len(prompt) :]


@define(eq=False)
class FakeRunner:
    """The `keys and values` of a position are its token id, kept in pages like a real cache.

    The next token is a function of what the page table leads to. A page that two sequences share by
    mistake, a chunk that was skipped or a page freed too early changes the output.
    """

    num_pages: int
    page_size: int
    vocabulary: tuple[int, ...] = LETTERS
    """Token ids to choose from."""
    poison: int | None = None
    """A prompt that holds this token makes its own row fail."""
    plans: list[StepPlan] = field(factory=list)
    _slots: list[int] = field(init=False)
    _sampled: dict[Sequence, int] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._slots = [NO_TOKEN] * (self.num_pages * self.page_size)

    def stage(self, plan: StepPlan) -> "FakeStep":
        """See Runner.stage."""
        self.plans.append(plan)
        return FakeStep(self, plan)

    def compute(self, plan: StepPlan) -> StepResult:
        """Write the tokens fed into their slots, then sample from what the tables lead to."""
        sampled_before = self._sampled
        self._sampled = {}
        for row in plan.rows:
            fed = (sampled_before[row.sequence],) if row.is_carried else row.token_ids
            for position, token_id in enumerate(fed, start=row.start):
                self._slots[self._slot(row, position)] = token_id
        tokens: list[int | None] = []
        failures: list[RowFailure] = []
        readouts: dict[int, RowReadout] = {}
        for index, row in enumerate(plan.rows):
            prefix = tuple(self._slots[self._slot(row, position)] for position in range(row.end))
            try:
                token, readout = self._read(row, prefix)
            except RequestFailed as error:
                failures.append(RowFailure(index, str(error)))
                tokens.append(None)
                # A step that was launched already may carry what this row did not sample.
                self._sampled[row.sequence] = NO_TOKEN
                continue
            tokens.append(token)
            if token is not None:
                self._sampled[row.sequence] = token
            if readout is not None:
                readouts[index] = readout
        return StepResult(tuple(tokens), tuple(failures), readouts)

    @property
    def dtype(self) -> str:
        """See PageMemory."""
        return "int32"

    @property
    def layout(self) -> str:
        """See PageMemory."""
        return f"[{self.page_size}]"

    def read(self, page_id: int) -> bytes:
        """See PageMemory."""
        begin = page_id * self.page_size
        return pack(f"<{self.page_size}i", *self._slots[begin : begin + self.page_size])

    def write(self, page_id: int, block: bytes) -> None:
        """See PageMemory."""
        begin = page_id * self.page_size
        self._slots[begin : begin + self.page_size] = unpack(f"<{self.page_size}i", block)

    def draw(self, row: PlanRow, prefix: tuple[int, ...]) -> int:
        """The token that `row` draws after `prefix`; RequestFailed if there is none to draw.

        Bias, penalties and mask change it only where they do not allow the plain choice.
        """
        token = next_token(prefix, row.sample_index, self.vocabulary)
        allowed = allowed_tokens(row, prefix, self.vocabulary)
        return token if token in allowed else next_token(prefix, row.sample_index, allowed)

    def _read(self, row: PlanRow, prefix: tuple[int, ...]) -> tuple[int | None, RowReadout | None]:
        if self.poison is not None and self.poison in prefix:
            raise RequestFailed("the logits are not finite")
        token = self.draw(row, prefix) if row.is_sampled else None
        return token, fake_readout(row, prefix, token, self.vocabulary)

    def _slot(self, row: PlanRow, position: int) -> int:
        return row.page_ids[position // self.page_size] * self.page_size + position % self.page_size


@define(eq=False)
class FakeStep:
    """See Step."""

    runner: FakeRunner
    plan: StepPlan
    _result: StepResult | None = None

    def launch(self) -> None:
        """See Step.launch."""
        self._result = self.runner.compute(self.plan)

    def result(self) -> StepResult:
        """See Step.result."""
        assert self._result is not None, "result before launch"
        return self._result


def fake_model(
    runner: FakeRunner, *, max_step_tokens: int = 64, max_model_len: int = 4096
) -> ServedModel:
    """`runner` as an engine serves it, with a tokenizer whose ids are bytes."""
    return ServedModel(
        info=ModelInfo(
            path="fake",
            model_type="fake",
            architectures=("FakeForCausalLM",),
            dtype="float32",
            vocab_size=VOCAB_SIZE,
            max_model_len=max_model_len,
        ),
        runner=runner,
        tokenizer=shared_byte_tokenizer(),
        num_pages=runner.num_pages,
        page_size=runner.page_size,
        max_step_tokens=max_step_tokens,
        memory=runner,
        fingerprint="fake",
    )
