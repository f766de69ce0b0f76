"""What a `FakeRunner` lets be read, and what it obeys: functions of the prefix, like its tokens.

`next_token` is the favourite of sample 0 and the most likely one, the letters of the vocabulary are
more likely than the rest, and the probabilities of all `VOCAB_SIZE` tokens add up to 1.
"""

import math
from hashlib import blake2b
from random import Random

import numpy as np

from trioserve.core import ReadoutParams, TokenLogprobs
from trioserve.device.base import RowReadout
from trioserve.errors import RequestFailed
from trioserve.scheduler.plan import PlanRow

LETTERS = tuple(b"abcdefghijklmnopqrstuvwxyz")
VOCAB_SIZE = 257
HIDDEN_SIZE = 8
_DECISIVE = 100.0
"""A bias of so much forces or bans a token; smaller ones do not outweigh the fake's choice."""


def next_token(
    prefix: tuple[int, ...], sample_index: int = 0, vocabulary: tuple[int, ...] = LETTERS
) -> int:
    """The token that follows `prefix`: a hash of all of it, so that one wrong token shows."""
    digest = blake2b(repr((prefix, sample_index)).encode(), digest_size=8).digest()
    return vocabulary[int.from_bytes(digest) % len(vocabulary)]


def allowed_tokens(
    row: PlanRow, prefix: tuple[int, ...], vocabulary: tuple[int, ...]
) -> tuple[int, ...]:
    """What `row` lets be drawn after `prefix`; RequestFailed if that is nothing.

    A mask leaves what it allows of the vocabulary, or else of all tokens. Bias forces and bans, the
    masked ids are banned, and positive penalties (a repetition penalty over 1) avoid what there was
    already, as long as something else is left.
    """
    sampling = row.sampling
    open_ids = mask_ids(row)
    if open_ids is not None:
        vocabulary = tuple(t for t in vocabulary if t in open_ids) or tuple(sorted(open_ids))
    unmasked = [token for token in vocabulary if token not in row.masked_ids]
    bias = dict(sampling.logit_bias)
    forced = [
        token
        for token, value in bias.items()
        if value >= _DECISIVE
        and token not in row.masked_ids
        and (open_ids is None or token in open_ids)
    ]
    wanted = [token for token in unmasked if bias.get(token, 0.0) > -_DECISIVE]
    allowed = forced or wanted or unmasked
    if not allowed:
        raise RequestFailed("every token is masked: there is none to draw")
    if sampling.has_penalties:
        carried = prefix[-1:] if row.is_carried else ()
        assert (*row.history, *carried) == prefix, f"{row.history} and {carried} for {prefix}"
        avoided: set[int] = set()
        if sampling.presence_penalty > 0.0 or sampling.frequency_penalty > 0.0:
            avoided.update(prefix[row.num_prompt :])
        if sampling.repetition_penalty > 1.0:
            avoided.update(prefix)
        allowed = [token for token in allowed if token not in avoided] or allowed
    return tuple(allowed)


def mask_ids(row: PlanRow) -> frozenset[int] | None:
    """The tokens that the row's grammar allows; None if it has none."""
    if row.mask is None:
        return None
    try:
        bits = np.unpackbits(np.frombuffer(row.mask.allowed(), np.uint8), bitorder="little")
    except Exception as error:
        raise RequestFailed(f"the grammar cannot be followed: {error}") from error
    return frozenset(np.flatnonzero(bits).tolist())


def fake_logprobs(
    prefix: tuple[int, ...], vocabulary: tuple[int, ...] = LETTERS
) -> tuple[float, ...]:
    """The logprob of each of the `VOCAB_SIZE` tokens after `prefix`, by id."""
    random = _random("logits", prefix)
    logits = [4.0 * random.random() for _ in range(VOCAB_SIZE)]
    for token in (*vocabulary, next_token(prefix, 0, vocabulary)):
        logits[token] += 4.0
    total = math.log(math.fsum(math.exp(logit) for logit in logits))
    return tuple(logit - total for logit in logits)


def fake_state(prefix: tuple[int, ...]) -> list[float]:
    """The hidden state after `prefix`: `HIDDEN_SIZE` singles from -1 to 1."""
    random = _random("state", prefix)
    state = [random.uniform(-1.0, 1.0) for _ in range(HIDDEN_SIZE)]
    singles: list[float] = np.array(state, np.float32).tolist()
    return singles


def fake_token_logprobs(
    prefix: tuple[int, ...],
    token_id: int,
    readout: ReadoutParams,
    vocabulary: tuple[int, ...] = LETTERS,
) -> TokenLogprobs:
    """What is read of `token_id` after `prefix`."""
    logprobs = fake_logprobs(prefix, vocabulary)
    best = sorted(range(VOCAB_SIZE), key=lambda token: (-logprobs[token], token))
    return TokenLogprobs(
        logprob=logprobs[token_id],
        top=tuple((token, logprobs[token]) for token in best[: readout.num_top or 0]),
        chosen=tuple(logprobs[token] for token in readout.token_ids),
    )


def fake_readout(
    row: PlanRow, prefix: tuple[int, ...], token_id: int | None, vocabulary: tuple[int, ...]
) -> RowReadout | None:
    """What `row` asks for after `prefix`, where it draws `token_id`; None if that is nothing."""
    readout = row.readout
    targets = enumerate(row.target_ids, start=row.target_start)
    prompt = tuple(
        fake_token_logprobs(prefix[:position], target_id, readout, vocabulary)
        for position, target_id in targets
    )
    sampled = None
    if token_id is not None and (readout.num_top is not None or readout.token_ids):
        sampled = fake_token_logprobs(prefix, token_id, readout, vocabulary)
    vector = None
    if readout.has_hidden_state and row.is_end_read:
        vector = np.array(fake_state(prefix), np.float32)
    if not prompt and sampled is None and vector is None:
        return None
    return RowReadout(prompt, sampled, vector)


def _random(purpose: str, prefix: tuple[int, ...]) -> Random:
    return Random(blake2b(repr((purpose, prefix)).encode(), digest_size=8).digest())
