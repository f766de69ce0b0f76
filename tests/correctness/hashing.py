"""A model and its runner that keep hashes of what they compute: equal hashes are equal bits."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

from attrs import field, frozen

from trioserve.runner.runner import ModelRunner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from trioserve.core import PageId
    from trioserve.device.base import StepResult
    from trioserve.model.decoder import Decoder, DecoderInput
    from trioserve.model.kv_pages import KvPages
    from trioserve.runner.staging import Staging
    from trioserve.scheduler.plan import StepPlan


@frozen(eq=False)
class HashingDecoder:
    """A decoder that keeps a hash of every row of logits it gave in the last step."""

    decoder: Decoder
    hashes: list[str] = field(factory=list)

    @property
    def pages(self) -> KvPages:
        return self.decoder.pages

    def forward(self, batch: DecoderInput) -> Tensor:
        self.hashes.clear()
        return self.decoder.forward(batch)

    def head(self, hidden: Tensor) -> Tensor:
        logits = self.decoder.head(hidden)
        self.hashes.extend(hashlib.blake2b(row.numpy().tobytes()).hexdigest() for row in logits)
        return logits

    def hash_of_pages(self, page_ids: Sequence[PageId], num_tokens: int) -> str:
        """Of the keys and values of all layers at a sequence's first positions."""
        digest = hashlib.blake2b()
        for index in range(self.decoder.spec.num_layers):
            for pages in self.pages.of_layer(index):
                # [pages, kv heads, page size, head dim] to [kv heads, positions, head dim]
                by_head = pages[list(page_ids)].transpose(0, 1).flatten(1, 2)
                digest.update(by_head[:, :num_tokens].contiguous().numpy().tobytes())
        return digest.hexdigest()


class HashingRunner(ModelRunner):
    """A runner that keeps, by sequence, the hash of every row of logits read for it, in order."""

    def __init__(
        self, decoder: HashingDecoder, *, max_tokens: int, max_sequences: int, max_len: int
    ) -> None:
        super().__init__(
            decoder, max_tokens=max_tokens, max_sequences=max_sequences, max_len=max_len
        )
        self.decoder = decoder
        self.hashes: defaultdict[object, list[str]] = defaultdict(list)
        self.most_rows = 0
        """Rows of the largest step."""

    def compute(self, plan: StepPlan, staging: Staging) -> StepResult:
        result = super().compute(plan, staging)
        self.most_rows = max(self.most_rows, len(plan.rows))
        hashes = iter(self.decoder.hashes)
        for row in plan.rows:
            self.hashes[row.sequence] += islice(hashes, len(row.target_ids) + row.is_end_read)
        return result
