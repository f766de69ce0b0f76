"""What happens around every request, whatever answers it."""

import quart
from prometheus_client import Counter
from quart import Response

from trioserve.api.accounting import current_account, open_account
from trioserve.api.auth import Gate
from trioserve.api.connection import ScopedApp, request_stack
from trioserve.api.cors import CorsPolicy
from trioserve.api.error_answers import error_response

UNREAD_BODY_BYTES = 65_536
"""A refused request whose body may be longer ends its connection: nobody reads it to its end."""


def add_hooks(app: ScopedApp, requests: Counter, gate: Gate, cors: CorsPolicy) -> None:
    """Account, key, request id and CORS, in the order in which they must come."""

    @app.before_request
    async def open_request_account() -> None:
        # On the stack first, so closed last: the engine's stream has ended by then.
        request_stack().callback(open_account(requests).close)

    @app.before_request
    async def check_key() -> Response | None:
        request = quart.request
        refusal = gate.refusal(request.method, request.path, request.headers.get("Authorization"))
        if refusal is None:
            return None
        # Before the path is looked up and the body is read: a stranger learns and costs nothing.
        response = error_response(refusal, current_account())
        length = request.content_length
        if "Transfer-Encoding" in request.headers or (length or 0) > UNREAD_BODY_BYTES:
            response.headers["Connection"] = "close"
        return response

    @app.after_request
    async def finish(response: Response) -> Response:
        account = current_account()
        response.headers["X-Request-Id"] = account.request_id
        cors.apply(quart.request, response)
        is_stream = response.content_type.startswith("text/event-stream")
        if response.status_code >= 400:
            account.outcome = str(response.status_code)
        elif not is_stream:
            account.outcome = "ok"
        return response
