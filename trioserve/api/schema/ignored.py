"""Fields that a body may carry without effect: the ones that the API names, and unknown ones."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import structlog
from attrs import frozen

from trioserve.api.errors import quoted
from trioserve.api.schema.declare import param, params_of
from trioserve.api.schema.kinds import AnyInteger, AnyObject, Anything, Boolean, Text

log = structlog.get_logger("trioserve.api")

_ANY_PREFIX = "bootstrap_"


WITHOUT_EFFECT = "Accepted without effect."
"""What is said of a field whose type alone is looked at."""


@frozen(kw_only=True)
class IgnoredFields:
    """What clients and routers send that means nothing here."""

    user: str | None = param(Text(), None, WITHOUT_EFFECT, is_served=False)
    metadata: dict[str, Any] | None = param(AnyObject(), None, WITHOUT_EFFECT, is_served=False)
    store: bool | None = param(Boolean(), None, WITHOUT_EFFECT, is_served=False)
    service_tier: str | None = param(Text(), None, WITHOUT_EFFECT, is_served=False)
    safety_identifier: str | None = param(Text(), None, WITHOUT_EFFECT, is_served=False)
    prompt_cache_key: str | None = param(Text(), None, WITHOUT_EFFECT, is_served=False)
    prompt_cache_retention: str | None = param(Text(), None, WITHOUT_EFFECT, is_served=False)
    prompt_cache_options: dict[str, Any] | None = param(
        AnyObject(), None, WITHOUT_EFFECT, is_served=False
    )
    prediction: dict[str, Any] | None = param(AnyObject(), None, WITHOUT_EFFECT, is_served=False)
    verbosity: str | None = param(Text(), None, WITHOUT_EFFECT, is_served=False)
    extra_key: Any = param(Anything(), None, WITHOUT_EFFECT, is_served=False)
    custom_labels: dict[str, Any] | None = param(AnyObject(), None, WITHOUT_EFFECT, is_served=False)
    session_id: str | None = param(Text(), None, WITHOUT_EFFECT, is_served=False)
    routed_dp_rank: int | None = param(AnyInteger(), None, WITHOUT_EFFECT, is_served=False)
    data_parallel_rank: int | None = param(AnyInteger(), None, WITHOUT_EFFECT, is_served=False)


def note_unknown(cls: type, body: Mapping[str, Any]) -> None:
    """Tell the log of fields that `cls` does not declare, once a name: they may be misspelt."""
    for name in body.keys() - params_of(cls).keys():
        if not name.startswith(_ANY_PREFIX):
            _note(quoted(name))


# The cache makes it once a name, and bounds what names that clients invent can take.
@lru_cache(maxsize=1024)
def _note(name: str) -> None:
    log.debug("unknown field ignored", field=name)
