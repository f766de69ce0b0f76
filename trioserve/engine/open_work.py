"""`OpenWork`: all requests that are open in an engine, whatever they ask for."""

import trio
from attrs import define, field

from trioserve.engine.abort_reason import AbortReason
from trioserve.engine.batch import Batch
from trioserve.engine.embedding import OpenEmbedding
from trioserve.engine.embedding_batch import EmbeddingBatch
from trioserve.engine.stream import RequestStream
from trioserve.errors import TrioserveError


@define(eq=False)
class OpenWork:
    """For the engine's end, planned or not."""

    batch: Batch | None = None
    embedding_batch: EmbeddingBatch | None = None
    _closed: trio.Event = field(init=False, factory=trio.Event)

    def requests(self) -> tuple[RequestStream | OpenEmbedding, ...]:
        """Those that are open now."""
        streams = self.batch.streams if self.batch is not None else ()
        embeddings = self.embedding_batch.requests if self.embedding_batch is not None else ()
        return (*streams, *embeddings)

    def note_closed(self) -> None:
        """A request's scope was left. Not a checkpoint."""
        self._closed.set()

    async def wait_none(self) -> None:
        """Until no request is open."""
        while self.requests():
            self._closed = trio.Event()
            await self._closed.wait()

    def fail(self, error: TrioserveError) -> None:
        """End every request with an error that its reader gets. Not a checkpoint."""
        for request in self.requests():
            if isinstance(request, OpenEmbedding):
                assert self.embedding_batch is not None
                self.embedding_batch.fail(request, error, AbortReason.FAILED)
            else:
                assert self.batch is not None
                self.batch.fail(request, error, AbortReason.FAILED)
