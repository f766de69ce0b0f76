"""`load_served_model` and `load_beside`: the real models for an engine.

Both are called on the device's thread and block for seconds, or longer while a model is converted;
`stop` ends that early. Both raise ConfigError if the model cannot be used.
"""

import threading

from trioserve.config import ServerConfig
from trioserve.engine.served import ServedEmbedder, ServedModel


def load_served_model(
    config: ServerConfig, max_running: int, stop: threading.Event
) -> ServedModel | ServedEmbedder:
    """The model of `--model-path`, which generates or embeds."""
    # Late: importing torch takes a second, which --help and a bad flag need not wait for.
    from trioserve.model.fingerprint import fingerprint
    from trioserve.runner.embedding_load import is_embedding_model
    from trioserve.runner.load import load_model
    from trioserve.text.built_in_templates import read_chat_template
    from trioserve.text.fill_in_middle import read_completion_template
    from trioserve.text.tokenizer import Tokenizer

    if config.is_embedding or is_embedding_model(config.model_path, stop):
        return _load_embedder(config.model_path, config.context_length, stop)
    # First: a mistake in a setting is told before the model takes its time.
    chat, completion = config.chat_template, config.completion_template
    chat_template = None if chat is None else read_chat_template(chat)
    fill_in_middle = None if completion is None else read_completion_template(completion)
    loaded = load_model(config, max_running=max_running, stop=stop)
    return ServedModel(
        info=loaded.info,
        runner=loaded.runner,
        tokenizer=Tokenizer.from_directory(
            loaded.directory, chat_template=chat_template, fill_in_middle=fill_in_middle
        ),
        num_pages=loaded.num_pages,
        page_size=loaded.page_size,
        max_step_tokens=loaded.max_step_tokens,
        memory=loaded.pages,
        fingerprint=fingerprint(loaded.directory) if config.cache_storage else "",
    )


def load_beside(config: ServerConfig, stop: threading.Event) -> ServedEmbedder:
    """The model of `--embedding-model-path`, beside one that generates."""
    assert config.embedding_model_path is not None, "there is no model beside"
    return _load_embedder(config.embedding_model_path, None, stop)


def _load_embedder(
    model_path: str, context_length: int | None, stop: threading.Event
) -> ServedEmbedder:
    from trioserve.runner.embedding_load import load_embedder

    loaded = load_embedder(model_path, context_length=context_length, stop=stop)
    return ServedEmbedder(
        info=loaded.info,
        runner=loaded.runner,
        tokenizer=loaded.tokenizer,
        prompt=loaded.spec.prompt,
        size=loaded.size,
        matryoshka=loaded.spec.matryoshka,
        max_step_tokens=loaded.max_step_tokens,
    )
