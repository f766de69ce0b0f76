"""CORS: which web pages may read answers. None, unless the server is told so."""

from attrs import frozen
from quart import Request, Response

_METHODS = "GET, HEAD, POST, PUT, OPTIONS"
_HEADERS = "Authorization, Content-Type, X-Request-Id, *"
"""A wildcard leaves Authorization out. Clients in a page send more: OpenAI's says what it is."""
_EXPOSED = "X-Request-Id, Retry-After"
_MAX_AGE_S = 600


@frozen
class CorsPolicy:
    """The origins that may use the server.

    Credentials are never allowed: a page sends its key in a header of its own, not as a cookie, and
    without credentials a wildcard gives no page more than it could have from anywhere else.
    """

    origins: tuple[str, ...]

    def apply(self, request: Request, response: Response) -> None:
        """Add to the response, an error included, what its reader's browser asks for."""
        if not self.origins:
            return
        is_open = "*" in self.origins
        if not is_open:
            # Also where the origin is another one, or a cache would give it this answer.
            response.headers.add("Vary", "Origin")
        origin = request.headers.get("Origin")
        if origin is None or not (is_open or origin in self.origins):
            return
        response.headers["Access-Control-Allow-Origin"] = "*" if is_open else origin
        response.headers["Access-Control-Expose-Headers"] = _EXPOSED
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            response.headers["Access-Control-Allow-Methods"] = _METHODS
            response.headers["Access-Control-Allow-Headers"] = _HEADERS
            response.headers["Access-Control-Max-Age"] = str(_MAX_AGE_S)
