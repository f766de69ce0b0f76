"""`AdversarialRunner`: a model that goes for the worst that its grammar allows."""

from random import Random

from attrs import define

from trioserve.scheduler.plan import PlanRow
from trioserve.testing.fake_model import FakeRunner
from trioserve.testing.fake_readout import mask_ids
from trioserve.testing.fake_text import EOS_ID

_ENDING = [EOS_ID, *b'"@}].0123456789tfnrueals', *range(97, 123), *range(65, 91)]
_ENDING_RANK = {token: rank for rank, token in enumerate(_ENDING)}
_WORST = b'\\ \n\t"-.,eE+u{[\xf0\xed\x00\x1f/:0123456789'
_WORST_RANK = {token: rank for rank, token in enumerate(_WORST)}
_UNRANKED = 1000


def worst_token(token_ids: list[int], random: Random) -> int:
    """What an adversary takes: blanks, escapes, signs, brackets and digits, and no end."""
    bad = sorted(token_ids, key=lambda token: (_WORST_RANK.get(token, _UNRANKED), token))
    return bad[0] if random.random() < 0.7 else random.choice(bad[:4])


def ending_token(token_ids: list[int], random: Random) -> int:
    """The token that leads to an end, as far as one token shows that.

    Now and then another letter or digit: a pattern may wait for it.
    """
    best = min(token_ids, key=lambda token: _ENDING_RANK.get(token, _UNRANKED + token))
    plain = [token for token in token_ids if token < 128 and chr(token).isalnum()]
    is_end = best in (EOS_ID, ord('"'))
    return random.choice(plain) if plain and not is_end and random.random() < 0.4 else best


@define(eq=False)
class AdversarialRunner(FakeRunner):
    """Draws the worst tokens for a while, and then those that lead to an end.

    A function of the position and the sample alone, and for rows with a grammar only.
    """

    num_worst: int = 40

    def draw(self, row: PlanRow, prefix: tuple[int, ...]) -> int:
        """See FakeRunner."""
        allowed = mask_ids(row)
        if not allowed:
            return super().draw(row, prefix)
        token_ids = sorted(allowed - row.masked_ids)
        position = row.end - len(row.sequence.prompt_ids)
        random = Random(f"{row.sample_index}:{position}")
        choose = worst_token if position < self.num_worst else ending_token
        return choose(token_ids, random)
