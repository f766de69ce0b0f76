"""trioserve: language models over an OpenAI-compatible HTTP API, every request a Trio scope."""

__version__ = "0.1.0"
