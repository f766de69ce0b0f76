"""Bearer keys: who may come in, decided before anything else is looked at.

Deny by default: with a key configured every route needs one, those made later and those that do not
exist included. Only what `OPEN_PATHS` names is open: a load balancer and a scraper have no key, and
none of these shows what a client sent. A preflight (OPTIONS) cannot carry one.

The admin key is one more configured key: it opens every route, and where it is set it alone opens
`ADMIN_PATHS`. Rejected: an admin key that opens nothing else, as SGLang has it; whoever holds it
could abort every request anyway. Without `--api-key`, ordinary routes are open as ever.
"""

from hashlib import sha256
from hmac import compare_digest

from attrs import frozen

from trioserve.api.errors import ApiError
from trioserve.config import ServerConfig

OPEN_PATHS = frozenset({"/health", "/health_generate", "/metrics"})
ADMIN_PATHS = frozenset({"/abort_request", "/flush_cache"})

_MISSING = "Missing API key; send it as the header 'Authorization: Bearer <key>'."
_INVALID = "Invalid API key"


def _digests(keys: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(sha256(key.encode()).digest() for key in keys)


@frozen(repr=False)
class Gate:
    """The keys of one server, as digests: of equal length, so comparing takes the same time."""

    _ordinary: tuple[bytes, ...]
    """Keys for ordinary routes; with none these are open."""
    _admin: tuple[bytes, ...]
    """Likewise for admin routes."""

    @classmethod
    def of(cls, config: ServerConfig) -> "Gate":
        """The gate that these settings ask for."""
        admin = () if config.admin_api_key is None else _digests((config.admin_api_key,))
        ordinary = _digests(config.api_key)
        return cls(ordinary + admin if ordinary else (), admin or ordinary)

    def refusal(self, method: str, path: str, authorization: str | None) -> ApiError | None:
        """The 401 for a request with this header, or None if it may pass."""
        keys = self._admin if path in ADMIN_PATHS else self._ordinary
        if not keys or method == "OPTIONS" or path in OPEN_PATHS:
            return None
        if not authorization:
            return _unauthorized(_MISSING)
        scheme, _, key = authorization.partition(" ")
        given = sha256(key.strip().encode("utf-8", "surrogateescape")).digest()
        # Every key is compared, whichever matches: the time says nothing about which it was.
        is_known = sum(compare_digest(given, digest) for digest in keys) > 0
        return None if is_known and scheme.lower() == "bearer" else _unauthorized(_INVALID)


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
