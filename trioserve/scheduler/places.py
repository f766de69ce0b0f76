"""`Places`: where each sequence of a scheduler is: in the queue, in the batch, or put aside."""

from attrs import define, field

from trioserve.scheduler.sequence import Sequence, SequenceState
from trioserve.scheduler.waiting import WaitingQueue


@define(eq=False)
class Places:
    """Written by the scheduler alone. A sequence's `state` says in which of them it is."""

    waiting: WaitingQueue = field(init=False, factory=WaitingQueue)
    running: list[Sequence] = field(init=False, factory=list)
    """In order of rank, like the next."""
    paused: list[Sequence] = field(init=False, factory=list)
    """They hold pages but no slot."""

    @property
    def holders(self) -> tuple[Sequence, ...]:
        """Those that hold pages."""
        return (*self.running, *self.paused)

    def stalled(self) -> list[Sequence]:
        """Those of the paused whose reader still takes nothing, in order of rank."""
        return [sequence for sequence in self.paused if not sequence.has_credit]

    def move(self, sequence: Sequence, state: SequenceState) -> None:
        """Take the sequence out of its place and put it where `state` says."""
        self.take_out(sequence)
        self.put(sequence, state)

    def put(self, sequence: Sequence, state: SequenceState) -> None:
        """Put a sequence that is in none of them in its place."""
        sequence.state = state
        match state:
            case SequenceState.WAITING:
                self.waiting.add(sequence)
            case SequenceState.RUNNING:
                _insert(self.running, sequence)
            case SequenceState.PAUSED:
                _insert(self.paused, sequence)
            case SequenceState.ENDED:
                pass

    def take_out(self, sequence: Sequence) -> None:
        """Take the sequence out of the place that its state names."""
        match sequence.state:
            case SequenceState.WAITING:
                self.waiting.remove(sequence)
            case SequenceState.RUNNING:
                self.running.remove(sequence)
            case SequenceState.PAUSED:
                self.paused.remove(sequence)
            case SequenceState.ENDED:
                pass


def _insert(into: list[Sequence], sequence: Sequence) -> None:
    into.append(sequence)
    into.sort(key=lambda held: held.rank)  # nearly sorted: one pass
