"""trioserve with a model that costs nothing, for tests of the process and not of the model.

`python fake_app.py serve …`, `hypercorn -k trio fake_app:app` and `hypercorn fake_app:app` start
what the real commands start; only the load is replaced. A prompt that holds "!" breaks the
device's step and with it the driver.
"""

import os
import threading
import time
from pathlib import Path

import trioserve.hosting
from trioserve.config import ServerConfig
from trioserve.device.base import StepResult
from trioserve.engine.served import ServedModel
from trioserve.errors import ConfigError
from trioserve.scheduler.plan import StepPlan
from trioserve.testing.fake_model import FakeRunner, fake_model

STEP_S = float(os.environ.get("FAKE_STEP_S", "0.005"))
LOAD_GATE = os.environ.get("FAKE_LOAD_GATE")
"""A file that has to exist before the load returns."""
LOAD_ERROR = os.environ.get("FAKE_LOAD_ERROR")
POISON = ord("!")


class TimedRunner(FakeRunner):
    """Takes its time, as a model does, and lets the driver die on request."""

    def compute(self, plan: StepPlan) -> StepResult:
        time.sleep(STEP_S)
        if any(POISON in row.token_ids for row in plan.rows):
            raise RuntimeError("the device is gone")
        return super().compute(plan)


def load_fake_model(_config: ServerConfig, _max_running: int, stop: threading.Event) -> ServedModel:
    while LOAD_GATE is not None and not Path(LOAD_GATE).exists() and not stop.wait(0.01):
        pass
    if LOAD_ERROR is not None:
        raise ConfigError(LOAD_ERROR)
    return fake_model(TimedRunner(num_pages=1024, page_size=16), max_model_len=16_384)


trioserve.hosting.load_served_model = load_fake_model

from trioserve.app import app  # noqa: E402  # after the replacement

__all__ = ["app"]

if __name__ == "__main__":
    from trioserve.cli import main

    main()
