"""Turning a plan into the arrays of a step, in buffers made once.

Runs on the event loop, so it uses numpy only and allocates nothing of size.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from attrs import frozen

from trioserve.model.decoder import DecoderInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trioserve.scheduler.plan import StepPlan


@frozen
class Output:
    """What one of a step's final states is wanted for."""

    row: int
    """The plan row that it is of."""
    target_id: int | None
    """The prompt token whose logprobs are read from it; None: it is the row's last one."""


class Staging:
    """One step's input arrays. Valid for one plan at a time: until the step has been launched."""

    def __init__(self, max_tokens: int, max_sequences: int, max_pages: int) -> None:
        """Sizes are upper limits of any plan: tokens fed, rows, and pages of one sequence."""
        self._token_ids = np.zeros(max_tokens, dtype=np.int64)
        self._positions = np.zeros(max_tokens, dtype=np.int32)
        self._slots = np.zeros(max_tokens, dtype=np.int64)
        self._row_sequence = np.zeros(max_tokens, dtype=np.int32)
        self._page_table = np.zeros((max_sequences, max_pages), dtype=np.int32)
        self._output_rows = np.zeros(max_tokens, dtype=np.int64)
        self._outputs: list[Output] = []
        self._carried: list[tuple[int, int]] = []
        self._num_tokens = 0
        self._num_sequences = 0

    def fill(self, plan: "StepPlan", page_size: int) -> None:
        """Write the arrays for `plan`; carried tokens are filled in by `carry` at launch."""
        num_tokens, num_rows = plan.num_tokens, len(plan.rows)
        assert num_tokens <= self._token_ids.size, (num_tokens, self._token_ids.size)
        assert num_rows <= len(self._page_table), (num_rows, len(self._page_table))
        self._carried.clear()
        # A new list: the one before may still be read from.
        self._outputs = []
        begin = 0
        for index, row in enumerate(plan.rows):
            end = begin + row.num_tokens
            assert len(row.page_ids) * page_size >= row.end, (row.page_ids, row.end, page_size)
            pages = self._page_table[index]
            pages[: len(row.page_ids)] = row.page_ids
            positions = self._positions[begin:end]
            positions[:] = np.arange(row.start, row.end, dtype=np.int32)
            self._slots[begin:end] = pages[positions // page_size].astype(np.int64) * page_size
            self._slots[begin:end] += positions % page_size
            self._row_sequence[begin:end] = index
            if row.is_carried:
                self._carried.append((begin, index))
            else:
                self._token_ids[begin:end] = row.token_ids
            if row.target_ids:
                first = row.target_start - 1
                assert row.start <= first, (row.start, row.target_start)
                assert first + len(row.target_ids) <= row.end, (row.target_start, row.end)
                self._add_outputs(begin + first - row.start, index, row.target_ids)
            if row.is_end_read:
                self._add_outputs(end - 1, index, (None,))
            begin = end
        self._num_tokens, self._num_sequences = num_tokens, num_rows

    @property
    def outputs(self) -> list[Output]:
        """What each output row of `decoder_input` is for, in their order."""
        return self._outputs

    @property
    def carried(self) -> list[tuple[int, int]]:
        """(place in token_ids, plan row) of each token that the step before samples."""
        return self._carried

    def carry(self, place: int, token_id: int) -> None:
        """Fill in one carried token."""
        self._token_ids[place] = token_id

    def decoder_input(self) -> DecoderInput:
        """Tensors over the buffers' used parts; they share memory with them."""
        tokens, sequences = slice(self._num_tokens), slice(self._num_sequences)
        return DecoderInput(
            token_ids=torch.from_numpy(self._token_ids[tokens]),
            positions=torch.from_numpy(self._positions[tokens]),
            slots=torch.from_numpy(self._slots[tokens]),
            row_sequence=torch.from_numpy(self._row_sequence[tokens]),
            page_table=torch.from_numpy(self._page_table[sequences]),
            output_rows=torch.from_numpy(self._output_rows[: len(self._outputs)]),
        )

    def _add_outputs(self, first: int, row: int, target_ids: "Sequence[int | None]") -> None:
        """The states of the tokens fed from place `first` on are wanted for `target_ids`."""
        begin = len(self._outputs)
        self._outputs += [Output(row, target_id) for target_id in target_ids]
        self._output_rows[begin : len(self._outputs)] = range(first, first + len(target_ids))
