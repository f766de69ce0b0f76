"""What a reply says of the prefix cache."""

from typing import Any

from attrs import frozen

from trioserve.api.schema.generation import GenerationBody
from trioserve.api.schema.native_generate import NativeGenerateBody
from trioserve.config import ServerConfig
from trioserve.core import CachedTokens
from trioserve.engine.stream import RequestStream
from trioserve.tiers.storage import StorageTier


@frozen
class CacheReport:
    """How much one request's reply says of the prompt tokens that were cached."""

    is_in_usage: bool = False
    """Usage says how many there were."""
    has_details: bool = False
    """The reply says where those of its first prompt came from."""
    storage_backend: str | None = None
    """What the storage tier is made of; None without one."""

    @classmethod
    def of(cls, body: GenerationBody | NativeGenerateBody, config: ServerConfig) -> "CacheReport":
        """What the server's settings and the request ask for (D17)."""
        asks = body.return_cached_tokens_details
        backend = StorageTier.backend if config.cache_storage else None
        return cls(asks or config.enable_cache_report, asks, backend)

    def usage_details(
        self, stream: RequestStream, *generation_indices: int
    ) -> dict[str, int] | None:
        """`prompt_tokens_details` of a usage that counts these prompts; null if not asked for."""
        if not self.is_in_usage:
            return None
        cached = map(stream.cached_tokens, generation_indices)
        return {"cached_tokens": sum(tokens.total for tokens in cached)}

    def extension(self, stream: RequestStream, generation_index: int = 0) -> dict[str, Any]:
        """The reply's member `sglext`, for one of its prompts; nothing if not asked for."""
        if not self.has_details:
            return {}
        details = cached_details(stream.cached_tokens(generation_index), self.storage_backend)
        return {"sglext": {"cached_tokens_details": details}}


def cached_details(cached: CachedTokens, storage_backend: str | None) -> dict[str, Any]:
    """A prompt's cached tokens, by where they came from. Storage shows only where there is one."""
    details: dict[str, Any] = {"device": cached.device, "host": cached.host}
    if storage_backend is not None:
        details |= {"storage": cached.storage, "storage_backend": storage_backend}
    return details
