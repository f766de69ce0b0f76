"""The answer to an admitted request: one JSON object, or server-sent events."""

from quart import Response

from trioserve.api.accounting import current_account
from trioserve.api.cache_report import CacheReport
from trioserve.api.event_reply import EventReply
from trioserve.api.generation import Body
from trioserve.api.reply_shape import Frame, ReplyShape
from trioserve.api.sse import stream_response
from trioserve.api.whole_reply import whole_reply
from trioserve.config import ServerConfig
from trioserve.engine.stream import RequestStream


async def respond(
    stream: RequestStream, body: Body, shape: ReplyShape, model: str, config: ServerConfig
) -> Response:
    """The response, streamed or whole as asked for, from `model`. A checkpoint.

    Raises TrioserveError if a whole answer failed; a stream that has begun carries its error.
    """
    account = current_account()
    report = CacheReport.of(body, config)
    frame = Frame(stream, body, shape, model, account.created, report)
    if body.stream:
        writer = EventReply(stream, account, config.sse_ping_interval, frame)
        return stream_response(writer.events())
    return Response(await whole_reply(frame), content_type="application/json")
