"""`depth`: how many steps the driver keeps in flight."""

import pytest


@pytest.fixture(params=[1, 2], ids=["depth1", "depth2"])
def depth(request: pytest.FixtureRequest) -> int:
    return int(request.param)
