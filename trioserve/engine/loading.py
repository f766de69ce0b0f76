"""From the settings to loaded models, and to the tiers below a model's pages."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

from attrs import frozen

from trioserve.config import ServerConfig
from trioserve.engine.batch import Batch
from trioserve.engine.cache_tiers import CacheTiers
from trioserve.engine.served import ModelDirectory, NamedModel, ServedEmbedder, ServedModel
from trioserve.errors import ConfigError
from trioserve.tiers.host import HostTier
from trioserve.tiers.page_key import KeySpace
from trioserve.tiers.storage import StorageTier

T = TypeVar("T")


class RunThere(Protocol):
    """`Device.run`."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


@frozen
class LoadedModels:
    """What a server serves."""

    model: ServedModel | None
    """The one that generates, if any."""
    embedder: ServedEmbedder | None
    directory: ModelDirectory


async def load_models(
    config: ServerConfig,
    load: Callable[[ServerConfig], ServedModel | ServedEmbedder],
    load_beside: Callable[[ServerConfig], ServedEmbedder] | None,
    run_there: RunThere,
) -> LoadedModels:
    """The model of --model-path and the one beside it, if any. A checkpoint. Raises ConfigError."""
    # The one beside first: the other's page pool takes a share of the memory that is left.
    beside = None if load_beside is None else await run_there(lambda: load_beside(config))
    model = await run_there(lambda: load(config))
    models = [NamedModel(config.served_names, config.model_path, model.info)]
    if isinstance(model, ServedEmbedder):
        if beside is not None:
            raise ConfigError(
                f"--model-path {config.model_path} is an embedding model itself; "
                "--embedding-model-path is for one beside a model that generates"
            )
        return LoadedModels(None, model, ModelDirectory(tuple(models)))
    if beside is not None and config.embedding_model_path is not None:
        names = config.embedding_names
        models.append(NamedModel(names, config.embedding_model_path, beside.info))
    return LoadedModels(model, beside, ModelDirectory(tuple(models)))


def open_storage(config: ServerConfig) -> StorageTier:
    """The storage tier that the settings name. Blocks. Raises ConfigError."""
    assert config.cache_storage is not None, "no storage is asked for"
    return StorageTier.open(Path(config.cache_storage), config.cache_storage_bytes)


def connect_tiers(
    config: ServerConfig, batch: Batch | None, storage: StorageTier | None
) -> CacheTiers | None:
    """The tiers that the settings ask for, connected to the batch. Raises ConfigError."""
    if storage is None and not config.host_cache_bytes:
        return None
    if batch is None or (memory := batch.model.memory) is None:
        raise ConfigError(
            "--cache-storage and --host-cache-bytes keep what a model that generates has computed; "
            "no such model is served"
        )
    model = batch.model
    batch.tiers = CacheTiers(
        scheduler=batch.scheduler,
        memory=memory,
        keys=KeySpace(model.fingerprint, memory.dtype, memory.layout, model.page_size),
        host=HostTier(config.host_cache_bytes) if config.host_cache_bytes else None,
        storage=storage,
    )
    return batch.tiers
