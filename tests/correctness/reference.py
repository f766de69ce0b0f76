"""transformers' own float32 forward on the same folder, and the comparison with our tokens."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAX_TIE = 0.05
"""Two logits closer than this are a tie, which float16-rounded arithmetic may break either way."""


@frozen
class Position:
    """What the reference says of one output token, given all tokens before it."""

    best_id: int
    second_id: int
    gap: float


@frozen
class Excuse:
    """A token that differs from the reference's best where the two best are a tie."""

    name: str
    index: int
    our_id: int
    position: Position


class Reference:
    """A causal model of transformers in float32."""

    def __init__(self, directory: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's own
            from transformers import AutoModelForCausalLM

            self._model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        self._model.eval()

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int], num_last: int) -> torch.Tensor:
        """Logits after each of the last `num_last` tokens, [num_last, vocab]."""
        output = self._model(torch.tensor([list(token_ids)]), logits_to_keep=num_last)
        logits: torch.Tensor = output.logits[0]
        return logits

    def logprobs(self, token_ids: Sequence[int], num_last: int) -> torch.Tensor:
        """Logprobs of every token after each of the last `num_last`, [num_last, vocab]."""
        return self.logits(token_ids, num_last).log_softmax(dim=-1)

    @torch.inference_mode()
    def state(self, token_ids: Sequence[int]) -> torch.Tensor:
        """What the head is given after the last token, [hidden size]."""
        output = self._model.model(torch.tensor([list(token_ids)]))
        state: torch.Tensor = output.last_hidden_state[0, -1]
        return state

    @torch.inference_mode()
    def generate(self, prompt_ids: Sequence[int], num_tokens: int) -> list[int]:
        """Its own greedy text; `num_tokens` must be no more than it says before its end token."""
        tokens = torch.tensor([list(prompt_ids)])
        output = self._model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            do_sample=False,
            min_new_tokens=num_tokens,
            max_new_tokens=num_tokens,
        )
        output_ids: list[int] = output[0, len(prompt_ids) :].tolist()
        return output_ids

    def positions(self, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> list[Position]:
        """Its opinion of every output token, with our output as the text so far."""
        tokens = [*prompt_ids, *output_ids[:-1]]
        values, ids = self.logits(tokens, len(output_ids)).topk(2)
        return [
            Position(int(i[0]), int(i[1]), float(v[0] - v[1]))
            for i, v in zip(ids, values, strict=True)
        ]


def find_excuses(name: str, output_ids: Sequence[int], positions: list[Position]) -> list[Excuse]:
    """Our tokens that differ at a tie; AssertionError for one that differs elsewhere."""
    excuses = []
    for index, (our_id, position) in enumerate(zip(output_ids, positions, strict=True)):
        if our_id != position.best_id:
            assert position.gap <= MAX_TIE, (name, index, our_id, position)
            excuses.append(Excuse(name, index, our_id, position))
    return excuses
