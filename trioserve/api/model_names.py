"""Which model a request means, and whether that does what the endpoint is for."""

from trioserve.api.errors import invalid, quoted
from trioserve.engine.engine import Engine
from trioserve.engine.served import NamedModel, ServedEmbedder, ServedModel
from trioserve.errors import ModelNotFound, RequestError


def find_model(engine: Engine, name: str, *, is_generation: bool) -> NamedModel:
    """The model of that name, for an endpoint that generates or one that embeds.

    With --allow-any-model a name that nobody has means the model of the endpoint's kind. Raises
    ModelNotFound, RequestError for a model of the other kind, or Unavailable until models are
    loaded.
    """
    directory = engine.directory
    fitting = [model for model in directory.models if model.info.is_generation == is_generation]
    try:
        model = directory.find(name)
    except ModelNotFound:
        if not engine.config.allow_any_model:
            raise
        model = (fitting or directory.models)[0]
    if model not in fitting:
        raise _wrong_kind(name, "model", is_generation=is_generation)
    return model


def generating_model(engine: Engine, name: str | None = None) -> ServedModel:
    """The model that generates, to check a body against before its model's name is looked at.

    A server that has none answers as it would for the name alone, see `find_model`; without a
    name, where no field of the body has one, as it would for its own model's.
    """
    _require_kind(engine, name, is_generation=True)
    return engine.model


def embedding_model(engine: Engine, name: str) -> ServedEmbedder:
    """The model that embeds, likewise."""
    _require_kind(engine, name, is_generation=False)
    return engine.embedding_batch.model


def shown_name(name: str, model: NamedModel) -> str:
    """The name of the model in a reply: as sent, or the canonical one for a name that is not ours.

    Such a name gets here only where any is allowed.
    """
    return name if model.has_name(name) else model.names[0]


def _require_kind(engine: Engine, name: str | None, *, is_generation: bool) -> None:
    directory = engine.directory
    if any(model.info.is_generation == is_generation for model in directory.models):
        return
    if name is not None:
        find_model(engine, name, is_generation=is_generation)
    raise _wrong_kind(directory.primary.names[0], None, is_generation=is_generation)


def _wrong_kind(name: str, param: str | None, *, is_generation: bool) -> RequestError:
    kind = "generation" if is_generation else "embeddings"
    message = f"the model '{quoted(name)}' does not support {kind}"
    return invalid(message, param, "wrong_model_kind")
