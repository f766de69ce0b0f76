"""What the tests of reply parsers share: parts put together, and texts cut into pieces."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from attrs import define, field
from hypothesis import strategies as st

from trioserve.text.reply_parts import (
    CallArguments,
    CallBegun,
    Content,
    Reasoning,
    ReplyPart,
)


@define
class Read:
    """What a text was read as."""

    content: str = ""
    reasoning: str = ""
    calls: list[list[str]] = field(factory=list)
    """Name and arguments of each."""
    num_complete: int = field(default=0, eq=False)

    def add(self, part: ReplyPart) -> None:
        match part:
            case Content():
                self.content += part.text
            case Reasoning():
                self.reasoning += part.text
            case CallBegun():
                self.calls.append([part.name, ""])
            case CallArguments():
                self.calls[-1][1] += part.text


class Reader(Protocol):
    @property
    def num_calls(self) -> int: ...
    def feed(self, text: str) -> Sequence[ReplyPart]: ...
    def flush(self) -> Sequence[ReplyPart]: ...


def read(reader: Reader, pieces: Iterable[str]) -> Read:
    """All parts of a text that comes in these pieces; positions never run ahead or back."""
    found = Read()
    num_fed = position = 0
    for piece in pieces:
        num_fed += len(piece)
        for part in reader.feed(piece):
            assert part.text if not isinstance(part, CallBegun) else part.name
            assert position <= part.end <= num_fed, (part, position, num_fed)
            position = part.end
            found.add(part)
    for part in reader.flush():
        assert position <= part.end <= num_fed, (part, position, num_fed)
        position = part.end
        found.add(part)
    found.num_complete = reader.num_calls
    return found


def cut(text: str, places: Iterable[int]) -> list[str]:
    """`text` in pieces, some perhaps empty."""
    borders = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(borders)]


PLACES = st.lists(st.integers(0, 10_000), max_size=12)


def assert_cuts_do_not_matter(
    new_reader: Callable[[], Reader], text: str, places: Iterable[int]
) -> Read:
    """Read `text` whole, in single characters and in pieces; what it is read as."""
    whole = read(new_reader(), [text])
    assert read(new_reader(), text) == whole, text
    assert read(new_reader(), cut(text, places)) == whole, text
    return whole


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(
        ["</tool_call>", "<tool_call>", "[TOOL_CALLS][", '\\"', "}]}", "{", ";", "😀", "\\", '"']
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=4)
