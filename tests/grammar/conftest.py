"""`start`: the HTTP app over an engine over fakes, as the tests of the API have it."""

from tests.api.conftest import start

__all__ = ["start"]
