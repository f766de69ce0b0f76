"""trioserve with a model that costs nothing and small limits, for requests by the thousand.

`python fake_app.py serve …` is `trioserve serve …` but for the load. Unlike the fake of
tests/process, no prompt breaks it.
"""

import threading

import trioserve.hosting
from trioserve.config import ServerConfig
from trioserve.engine.served import ServedModel
from trioserve.testing.fake_model import FakeRunner, fake_model

MAX_MODEL_LEN = 128


def load_fake_model(
    _config: ServerConfig, _max_running: int, _stop: threading.Event
) -> ServedModel:
    runner = FakeRunner(num_pages=512, page_size=16)
    return fake_model(runner, max_step_tokens=512, max_model_len=MAX_MODEL_LEN)


trioserve.hosting.load_served_model = load_fake_model

if __name__ == "__main__":
    from trioserve.cli import main

    main()
