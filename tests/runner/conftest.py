"""`runner` over a `decoder` that the test can see through."""

from typing import Any, cast

import pytest

from tests.runner.kit import SuccessorDecoder
from trioserve.runner.runner import ModelRunner


@pytest.fixture
def decoder() -> SuccessorDecoder:
    return SuccessorDecoder()


@pytest.fixture
def runner(decoder: SuccessorDecoder) -> ModelRunner:
    return ModelRunner(cast("Any", decoder), max_tokens=16, max_sequences=4, max_len=32)
