"""`RequestAccount`: one log line and one count for every HTTP request, however it ends."""

import re
import time
from collections import Counter as Counts
from uuid import uuid4

import quart
import structlog
import trio
from attrs import define, field
from prometheus_client import Counter

from trioserve.core import FinishReason
from trioserve.engine.stream import RequestStream

log = structlog.get_logger("trioserve.api")

_KEY = "trioserve.account"
_VISIBLE_ASCII = re.compile(r"[!-~]{1,128}")


@define(eq=False)
class RequestAccount:
    """Made before a request is dispatched; closed by the request's exit stack."""

    requests: Counter
    endpoint: str
    request_id: str
    opened_at: float
    created: int = field(init=False, factory=lambda: int(time.time()))
    """Unix time, for the `created` of the reply."""
    outcome: str = field(init=False, default="cancelled")
    """`ok`, an HTTP error status, or `cancelled` until one of them is known."""
    error: str | None = field(init=False, default=None)
    stream: RequestStream | None = field(init=False, default=None)

    def close(self) -> None:
        """Count the request and write its line. Not a checkpoint."""
        self.requests.labels(self.endpoint, self.outcome).inc()
        duration_s = round(trio.current_time() - self.opened_at, 3)
        if self.stream is not None:
            log.info(
                "request",
                id=self.stream.request.request_id,
                endpoint=self.endpoint,
                outcome=self.outcome,
                prompt_tokens=self.stream.num_prompt_tokens,
                completion_tokens=self.stream.num_output_tokens,
                finish=_finishes(self.stream),
                duration_s=duration_s,
                **({"error": self.error} if self.error else {}),
            )
        elif self.outcome not in ("ok", "cancelled"):
            # A load balancer asks for the health of a loading server every second.
            refused = log.debug if self.endpoint == "/health" else log.info
            refused(
                "request refused",
                id=self.request_id,
                endpoint=self.endpoint,
                status=self.outcome,
                error=self.error,
            )


def request_id_for(given: str | None) -> str:
    """The client's own id of its request if it can be one, else a new one."""
    return given if given and _VISIBLE_ASCII.fullmatch(given) else uuid4().hex


def _finishes(stream: RequestStream) -> str:
    """`stop` or `stop:3,length:1`: counted, because a request may have a quarter of a million."""
    reasons = Counts(
        choice.finish.reason if choice.finish else FinishReason.ABORT for choice in stream.choices
    )
    if len(stream.choices) == 1:
        return next(iter(reasons))
    return ",".join(f"{reason}:{count}" for reason, count in sorted(reasons.items()))


def open_account(requests: Counter) -> RequestAccount:
    """The account of the request being dispatched. Its endpoint is the route, never the path."""
    rule = quart.request.url_rule
    account = RequestAccount(
        requests=requests,
        endpoint=rule.rule if rule is not None else "unknown",
        request_id=request_id_for(quart.request.headers.get("X-Request-Id")),
        opened_at=trio.current_time(),
    )
    quart.g.setdefault(_KEY, account)
    return account


def current_account() -> RequestAccount:
    """The account of the request being handled."""
    account = quart.g.get(_KEY)
    assert isinstance(account, RequestAccount), "a request is handled without an account"
    return account
