"""`Handles`: open streams by the names that clients may abort them by."""

from trioserve.engine.stream import RequestStream


class Handles:
    """A request's id names all of it, each of its `handles` the samples of one prompt.

    Kept exactly as long as the stream is open. Names are unique among open requests if the API
    refuses a request whose names are taken; if it does not, the first keeps them. No method is a
    checkpoint.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[RequestStream, int | None]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def find(self, handle: str) -> tuple[RequestStream, int | None] | None:
        """The open stream of that name, and which of its generations if only that is meant."""
        return self._found.get(handle)

    def add(self, stream: RequestStream) -> None:
        """The stream is open now."""
        self._found.setdefault(stream.request.request_id, (stream, None))
        for index, handle in enumerate(stream.request.handles):
            self._found.setdefault(handle, (stream, index))

    def remove(self, stream: RequestStream) -> None:
        """The stream is closed now. Idempotent."""
        for handle in (stream.request.request_id, *stream.request.handles):
            found = self._found.get(handle)
            if found is not None and found[0] is stream:
                del self._found[handle]
