"""`EmbeddingPlan`: which texts one step embeds. Pure Python, for the engine and the runner."""

from attrs import frozen

from trioserve.core import StepNumber


@frozen(eq=False)
class EmbeddingPlan:
    """One step of an embedding model."""

    number: StepNumber
    inputs: tuple[tuple[int, ...], ...]
    """The token ids of each row: a whole text, since an encoder sees all of it at once."""
