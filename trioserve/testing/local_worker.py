"""`LocalWorker`: compiles grammars in this process, for tests that have many servers."""

import trio
from attrs import define

from trioserve.grammar.compilation import compile_constraint, new_compiler
from trioserve.grammar.constraint import Constraint
from trioserve.grammar.errors import GrammarError
from trioserve.grammar.job import CompileJob
from trioserve.grammar.vocabulary import Vocabulary

_compiled: dict[tuple[Vocabulary, Constraint, int], str | GrammarError] = {}
"""Of the whole process: tests ask for the same few."""


@define(eq=False)
class LocalWorker:
    """See WorkerProcess. It cannot be killed, and holds up the event loop."""

    vocabulary: Vocabulary
    is_lost: bool = False

    @classmethod
    async def start(cls, vocabulary: Vocabulary) -> "LocalWorker":
        """See WorkerProcess."""
        await trio.lowlevel.checkpoint()
        return cls(vocabulary)

    async def compile(self, job: CompileJob) -> bytes:
        """See WorkerProcess."""
        await trio.lowlevel.checkpoint()
        key = (self.vocabulary, job.constraint, job.max_spaces)
        if key not in _compiled:
            try:
                compiler = new_compiler(self.vocabulary)
                compiled = compile_constraint(
                    compiler, self.vocabulary, job.constraint, job.max_spaces
                )
                _compiled[key] = compiled.serialize_json()
            except GrammarError as error:
                _compiled[key] = GrammarError(error.detail)
        outcome = _compiled[key]
        if isinstance(outcome, GrammarError):
            raise GrammarError(outcome.detail)
        return outcome.encode()

    def close(self) -> None:
        """See WorkerProcess."""
