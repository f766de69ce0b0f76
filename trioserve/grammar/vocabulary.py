"""`Vocabulary`: what each token of a model stands for, as grammars need it."""

import json
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from attrs import field, frozen

from trioserve.grammar.matching import Words, no_tokens

if TYPE_CHECKING:
    import xgrammar

    from trioserve.text.tokenizer import Tokenizer


@frozen(slots=False)
class Vocabulary:
    """Made once for a model, off the event loop: a large one takes half a second."""

    tokens: tuple[bytes, ...] = field(repr=False)
    """By id; empty for special tokens, which a grammar never allows as text."""
    num_ids: int
    """As many as the model's logits: those beyond the tokenizer stand for nothing."""
    eos_ids: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: "Tokenizer", num_ids: int) -> "Vocabulary":
        """A model's."""
        num_known = min(tokenizer.vocab_size, num_ids)
        silent = tokenizer.special_ids | tokenizer.eos_token_ids
        tokens = tuple(
            b"" if token_id in silent else tokenizer.token_bytes(token_id)
            for token_id in range(num_known)
        )
        eos_ids = sorted(i for i in tokenizer.eos_token_ids if i < num_ids)
        return cls(tokens, num_ids, tuple(eos_ids))

    @classmethod
    def from_json(cls, text: bytes) -> "Vocabulary":
        """What `to_json` gave."""
        tokens, num_ids, eos_ids = json.loads(text)
        return cls(tuple(token.encode("latin-1") for token in tokens), num_ids, tuple(eos_ids))

    def to_json(self) -> bytes:
        """For another process."""
        tokens = [token.decode("latin-1") for token in self.tokens]
        return json.dumps([tokens, self.num_ids, self.eos_ids]).encode()

    @cached_property
    def text_tokens(self) -> Words:
        """All but those that end a text."""
        words = no_tokens(self.num_ids)
        bits = np.ones(self.num_ids, np.uint8)
        bits[list(self.eos_ids)] = 0
        packed = np.packbits(bits, bitorder="little")
        words.view(np.uint8)[: packed.size] = packed
        return words

    @cached_property
    def info(self) -> "xgrammar.TokenizerInfo":
        """As xgrammar has it; made when first asked for, in tens of milliseconds."""
        import xgrammar

        return xgrammar.TokenizerInfo(
            list(self.tokens),
            vocab_type=xgrammar.VocabType.RAW,
            vocab_size=self.num_ids,
            stop_token_ids=list(self.eos_ids),
        )
