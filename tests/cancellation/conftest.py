"""The engine's fixtures serve here too."""

from tests.engine.conftest import depth, start

__all__ = ["depth", "start"]
