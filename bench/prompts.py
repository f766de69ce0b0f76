"""Prompts of about a wanted number of tokens that share nothing but what they are told to share."""

import random
from collections.abc import Awaitable, Callable

from attrs import frozen

# Short and common, so that most tokenizers give each of them one token.
WORDS = (
    "the a one two three time year people way day man thing woman life child world school state "
    "family student group country problem hand part place case week company system program "
    "question work number night point home water room mother area money story fact month lot "
    "right study book eye job word business issue side kind head house service friend father "
    "power hour game line end member law car city name team minute idea body back parent face "
    "level office door health person art war history party result change morning reason girl "
    "boy food air force river bridge garden winter summer stone paper music road train ship"
).split()

Counter = Callable[[str], Awaitable[int]]


@frozen
class Rate:
    """How a server counts: tokens = base + per_word × words."""

    base: float
    per_word: float

    def words_for(self, num_tokens: int) -> int:
        """Words that come to about `num_tokens`, at least one."""
        return max(1, round((num_tokens - self.base) / self.per_word))


def text(rng: random.Random, num_words: int) -> str:
    """A text of `num_words` words, drawn anew."""
    return " ".join(rng.choices(WORDS, k=num_words))


async def measure_rate(count: Counter, seed: int) -> Rate:
    """Asks the server to count two texts; a chat template and a leading token end up in `base`."""
    rng = random.Random(f"rate {seed}")
    few, many = 50, 250
    low, high = await count(text(rng, few)), await count(text(rng, many))
    per_word = (high - low) / (many - few)
    if per_word <= 0:
        raise ValueError(f"the server counts {low} tokens for {few} words, {high} for {many}")
    return Rate(low - per_word * few, per_word)


@frozen
class PromptMaker:
    """Makes prompt number n; the same seed makes the same prompts."""

    rate: Rate
    num_tokens: int
    num_shared_tokens: int
    seed: int

    def make(self, number: int) -> str:
        """Prompt `number`: the shared beginning, if any, then words of its own."""
        num_words = self.rate.words_for(self.num_tokens)
        num_shared = 0
        if self.num_shared_tokens:
            num_shared = min(self.rate.words_for(self.num_shared_tokens), num_words - 1)
        shared = text(random.Random(f"shared {self.seed}"), num_shared)
        own = text(random.Random(f"own {self.seed} {number}"), num_words - num_shared)
        return f"{shared} {own}" if num_shared else own
