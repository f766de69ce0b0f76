"""`.stream()` and `.parse()` of `openai` for Python sum up to what a plain request answers."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.clients.environments import OPENAI_CLIENTS, Environment
from tests.clients.kit import MODEL, base_url, start_script
from trioserve.testing.server_process import ServerProcess


@pytest.mark.row("S-H-041", "S-G-002", "S-H-013", "S-H-014")
@pytest.mark.parametrize("n", [1, 3])
def test_helpers_agree_with_the_plain_request(
    server: ServerProcess, environment: Callable[[str], Environment], n: int
) -> None:
    with ExitStack() as stack:
        # At once, since the server computes them as one batch: another's text would show.
        clients = {
            (version, way): stack.enter_context(
                start_script(
                    *(environment(version), "openai_helpers.py", way),
                    *(base_url(server), MODEL, str(n)),
                )
            )
            for version, way in OPENAI_CLIENTS
        }
        for key, client in clients.items():
            assert_agreement(client.answer(), n, key)


def assert_agreement(got: dict[str, Any], n: int, key: tuple[str, str]) -> None:
    choices = got["whole"]["choices"]
    assert [(c["index"], c["role"], c["finish_reason"]) for c in choices] == [
        (index, "assistant", "stop") for index in range(n)
    ], key
    texts = {choice["content"] for choice in choices}
    assert len(texts) == n, "samples of one request differ, so that a mix-up would show"
    assert got["streamed"] == got["whole"], key
    assert got["parsed"] == got["whole"], key
    assert got["kinds"].count("content.done") == n, key
    assert got["num_chunks"] > 3 * n, f"the text came in one piece to {key}"
