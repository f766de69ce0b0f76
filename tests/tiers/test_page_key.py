"""A key names everything that a page's contents depend on."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioserve.tiers.page_key import KEY_BYTES, KeySpace

SPACE = KeySpace(model="f00d", dtype="float32", layout="30x2x3x64", page_size=4)
TOKENS = [5, 0, 49_151, 7, 1, 2, 3, 4, 9]

texts = st.text(alphabet="ab\x00\ud800:", max_size=3)
namespaces = st.lists(texts, max_size=4).map(tuple)


def test_only_whole_pages_have_keys_and_each_key_follows_from_the_one_before() -> None:
    first, second = SPACE.keys((), TOKENS)
    assert SPACE.keys((), TOKENS[:7]) == [first]
    assert SPACE.keys((), TOKENS[:3]) == SPACE.keys((), []) == []
    assert SPACE.following(first, TOKENS[4:8]) == second
    assert len(first) == len(second) == KEY_BYTES == 32


def test_keys_are_the_same_in_every_process() -> None:
    """They are looked up after a restart: a change here needs a new format number."""
    assert SPACE.root(("salt", "x")).hex() == (
        "191e5dd04c4d8bf65823c627ce1d8c3b26a9fa843c984c1622c1c9ae478809e7"
    )
    assert SPACE.keys((), TOKENS)[1].hex() == (
        "14239378f5d00322e153a286a1e324dbcceb107a955aa8fb4cfb37f01830307b"
    )


@pytest.mark.parametrize("position", range(4))
def test_every_token_changes_its_pages_key_and_all_that_follow(position: int) -> None:
    changed = TOKENS.copy()
    changed[position] += 1
    for before, after in zip(SPACE.keys((), TOKENS), SPACE.keys((), changed), strict=True):
        assert before != after


def test_the_order_of_tokens_and_of_pages_matters() -> None:
    pages = {tuple(SPACE.keys((), tokens)) for tokens in (TOKENS[:8], TOKENS[4:8] + TOKENS[:4])}
    assert len(pages) == 2
    assert SPACE.keys((), [1, 2, 3, 4]) != SPACE.keys((), [2, 1, 3, 4])


@pytest.mark.parametrize(
    ("name", "value"),
    [("model", "beef"), ("dtype", "float16"), ("layout", "30x2x3x32"), ("page_size", 8)],
)
def test_whatever_the_contents_depend_on_changes_every_key(name: str, value: str | int) -> None:
    other = attrs.evolve(SPACE, **{name: value})
    assert not set(other.keys((), TOKENS)) & set(SPACE.keys((), TOKENS))
    assert other.root(()) != SPACE.root(())


@pytest.mark.case(100)
@given(namespaces, namespaces)
def test_two_namespaces_never_share_a_key(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (SPACE.root(one) == SPACE.root(other)) is (one == other)
    assert (SPACE.keys(one, TOKENS) == SPACE.keys(other, TOKENS)) is (one == other)


@pytest.mark.case(100)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((), ("",)),
        (("",), ("", "")),
        (("ab", "c"), ("a", "bc")),
        (("salt", "x"), ("adapter", "x")),
        (("a\x00b",), ("a", "b")),
        (("salt:x",), ("salt", "x")),
    ],
)
def test_namespaces_that_read_alike_are_told_apart(
    one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    assert SPACE.root(one) != SPACE.root(other)


def test_a_namespace_cannot_pass_for_a_setting() -> None:
    """The strings of a namespace come after those of the space, in one hash."""
    other = KeySpace("f00d", "float32", "30x2x3x64", 4)
    assert other.root(()) == SPACE.root(())
    assert attrs.evolve(SPACE, layout="30x2x3x644").root(()) != SPACE.root(("4",))
