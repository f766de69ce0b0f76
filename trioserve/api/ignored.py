"""Fields that a body may carry without effect: the ones that the API names, and unknown ones."""

from collections.abc import Set as AbstractSet
from functools import lru_cache

import structlog

from trioserve.api.errors import quoted
from trioserve.api.fields import Body, as_int, get_bool, get_object, get_str

log = structlog.get_logger("trioserve.api")

_STRINGS = (
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "session_id",
    "user",
    "verbosity",
)
_OBJECTS = ("custom_labels", "metadata", "prediction", "prompt_cache_options")
_INTEGERS = ("data_parallel_rank", "priority", "routed_dp_rank")
_BOOLEANS = ("store",)
_OF_ANY_TYPE = ("extra_key",)
_OF_ANY_TYPE_PREFIX = "bootstrap_"

_IGNORED = frozenset((*_STRINGS, *_OBJECTS, *_INTEGERS, *_BOOLEANS, *_OF_ANY_TYPE))


def check_ignored(body: Body) -> None:
    """Raise RequestError for a field that has no effect, but the wrong type."""
    for name in _STRINGS:
        get_str(body, name)
    for name in _OBJECTS:
        get_object(body, name)
    for name in _INTEGERS:
        if body.get(name) is not None:
            as_int(body[name], name)
    for name in _BOOLEANS:
        get_bool(body, name, False)


def note_unknown(body: Body, known: AbstractSet[str]) -> None:
    """Tell the log of fields that nobody knows, once for each name: they may be misspelt."""
    for name in body.keys() - _IGNORED - known:
        if not name.startswith(_OF_ANY_TYPE_PREFIX):
            _note(quoted(name))


# The cache makes it once a name, and bounds what names that clients invent can take.
@lru_cache(maxsize=1024)
def _note(name: str) -> None:
    log.debug("unknown field ignored", field=name)
