"""What must hold of the scheduler's books after every step; for its `check`."""

from collections import Counter
from collections.abc import Iterable

from trioserve.kv.pool import PageState
from trioserve.scheduler.loads import PageLoad
from trioserve.scheduler.sequence import Sequence, SequenceState
from trioserve.scheduler.supply import PageSupply


def check_states(sequences: list[Sequence], state: SequenceState, supply: PageSupply) -> None:
    """Assert that these are in order, in the state, and hold the pages of what is planned."""
    ranks = [sequence.rank for sequence in sequences]
    assert ranks == sorted(set(ranks)), f"{state} out of order: {ranks}"
    for sequence in sequences:
        assert sequence.state is state, f"{sequence.id} is {sequence.state}, not {state}"
        held = len(sequence.lease.page_ids) if sequence.lease else 0
        needed = supply.pages_for(sequence.num_planned)
        assert held == needed, f"sequence {sequence.id} holds {held} pages for {needed}"


def check_holders(
    sequences: Iterable[Sequence], loads: Iterable[PageLoad], supply: PageSupply
) -> None:
    """Assert that these hold all leased pages and are all users of cached ones."""
    leases = [sequence.lease for sequence in sequences if sequence.lease is not None]
    leases += [load.lease for load in loads]
    own = sorted(page for lease in leases for page in lease.own_page_ids)
    leased = sorted(supply.pool.pages_in(PageState.LEASED))
    assert own == leased, f"sequences and loads hold {own}, the pool leased {leased}"
    users = Counter(node for lease in leases for node in lease.tip.path())
    for node in supply.tree.nodes():
        assert node.num_users == users[node], f"{node.num_users} users, not {users[node]}"
