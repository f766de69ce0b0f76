"""`load_served_model`: the real model for an engine, loaded on the device's thread."""

import threading

from trioserve.config import ServerConfig
from trioserve.engine.served import ServedModel


def load_served_model(config: ServerConfig, max_running: int, stop: threading.Event) -> ServedModel:
    """Blocks for seconds, or longer while a model is converted; `stop` ends that early.

    Raises ConfigError if the model cannot be used.
    """
    # Late: importing torch takes a second, which --help and a bad flag need not wait for.
    from trioserve.runner.load import load_model
    from trioserve.text.tokenizer import Tokenizer

    loaded = load_model(config, max_running=max_running, stop=stop)
    return ServedModel(
        info=loaded.info,
        runner=loaded.runner,
        tokenizer=Tokenizer.from_directory(loaded.directory),
        num_pages=loaded.num_pages,
        page_size=loaded.page_size,
        max_step_tokens=loaded.max_step_tokens,
    )
