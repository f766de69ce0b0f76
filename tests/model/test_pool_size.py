"""How many pages there are: memory against settings."""

import pytest

from trioserve.errors import ConfigError
from trioserve.model.pool_size import choose_num_pages, require_weights_fit

GIB = 1 << 30
PAGE = 1 << 20  # bytes of a page


def pages(
    available: int, *, max_len: int = 1600, running: int = 64, total: int | None = None
) -> int:
    return choose_num_pages(
        bytes_per_page=PAGE,
        page_size=16,
        max_model_len=max_len,
        max_running=running,
        max_total_tokens=total,
        available_bytes=available,
    )


def test_default_pool_takes_a_share_of_the_free_memory() -> None:
    assert pages(1 * GIB) == int(0.6 * GIB) // PAGE


def test_default_pool_is_bounded_on_a_large_machine() -> None:
    assert pages(100 * GIB) == 4096
    assert pages(100 * GIB, max_len=160_000) == 10_000


def test_default_pool_is_no_larger_than_all_sequences_can_use() -> None:
    assert pages(100 * GIB, running=2) == 200


def test_default_pool_holds_one_full_context_even_if_that_takes_most_of_the_memory() -> None:
    assert pages(120 * PAGE) == 100
    with pytest.raises(ConfigError, match=r"does not fit memory.*--context-length to at most 1424"):
        pages(99 * PAGE)


def test_a_page_larger_than_the_free_memory_is_refused_with_the_page_size() -> None:
    with pytest.raises(ConfigError, match=r"does not fit memory.*a --page-size below 16"):
        pages(PAGE // 2)


def test_max_total_tokens_is_taken_as_given_if_it_fits() -> None:
    assert pages(1 * GIB, total=160) == 10
    assert pages(50 * PAGE, total=175) == 10
    with pytest.raises(ConfigError, match="at most 720 fit"):
        pages(50 * PAGE, total=16_000)
    with pytest.raises(ConfigError, match="less than one page"):
        pages(GIB, total=15)


def test_weights_larger_than_the_free_memory_are_refused() -> None:
    require_weights_fit(GIB, GIB)
    with pytest.raises(ConfigError, match=r"does not fit memory: its weights need 2\.0 GiB"):
        require_weights_fit(2 * GIB, GIB)
