"""The body of `POST /abort_request`."""

from typing import Any

from attrs import frozen

from trioserve.api.errors import invalid
from trioserve.api.schema.declare import param, read_object
from trioserve.api.schema.kinds import Boolean, Text


@frozen(kw_only=True)
class AbortBody:
    """Which requests to abort."""

    rid: str | None = param(
        Text(),
        None,
        "The id of a request, or `<rid>_<i>` for one prompt of a batch; one that no open request "
        "has is no error.",
    )
    abort_all: bool = param(Boolean(), False, "Abort every open request.")


def parse_abort(body: dict[str, Any]) -> AbortBody:
    """Raises RequestError for the first thing that is wrong."""
    request = read_object(AbortBody, body)
    if not request.rid and not request.abort_all:
        raise invalid(
            "rid is required unless abort_all is true", "rid", "missing_required_parameter"
        )
    return request
