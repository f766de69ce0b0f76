"""Fill-in-the-middle templates: the built-in ones, custom ones, and models without their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from tests.text.conftest import byte_level_backend, sentencepiece_backend
from trioserve.errors import ConfigError
from trioserve.text.fill_in_middle import BUILT_IN, FillInMiddle, read_completion_template
from trioserve.text.tokenizer import Tokenizer
from trioserve.text.tokenizer_files import TokenizerFiles

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.row("S-C-032")
@pytest.mark.parametrize(
    ("name", "joined"),
    [
        ("deepseek_coder", "<｜fim▁begin｜>def f():<｜fim▁hole｜>return 1<｜fim▁end｜>"),
        ("star_coder", "<fim_prefix>def f():<fim_suffix>return 1<fim_middle>"),
        ("qwen_coder", "<|fim_prefix|>def f():<|fim_suffix|>return 1<|fim_middle|>"),
        ("<A>,<B>,<C>", "<A>def f():<B>return 1<C>"),
    ],
)
def test_a_template_puts_prompt_and_suffix_between_its_tokens(name: str, joined: str) -> None:
    template = read_completion_template(name)
    assert template.join("def f():", "return 1") == joined


@pytest.mark.parametrize("setting", ["", "qwen", "<A>,<B>", "<A>,,<C>", "<A>,<B>,<C>,<D>", ",,"])
def test_a_template_that_is_neither_a_name_nor_three_tokens_is_refused(setting: str) -> None:
    message = (
        "--completion-template must be deepseek_coder, star_coder, qwen_coder or three tokens "
        f"BEFORE,MIDDLE,AFTER, got {setting}"
    )
    with pytest.raises(ConfigError) as caught:
        read_completion_template(setting)
    assert str(caught.value) == message


def tokenizer_with(backend: Backend, template: FillInMiddle) -> Tokenizer:
    files = TokenizerFiles(backend, {}, frozenset(), None)
    return Tokenizer(files, fill_in_middle=template)


@pytest.mark.parametrize("make", [byte_level_backend, sentencepiece_backend])
@pytest.mark.parametrize("template", BUILT_IN.values(), ids=BUILT_IN)
def test_its_tokens_are_read_as_one_token_each(
    make: Callable[[], Backend], template: FillInMiddle
) -> None:
    backend = make()
    backend.add_special_tokens([AddedToken(token, special=True) for token in template])
    tokenizer = tokenizer_with(backend, template)
    ids = tokenizer.encode(template.join("x", "yz"), add_special_tokens=False)
    marks = [backend.token_to_id(token) for token in template]
    assert [token_id for token_id in ids if token_id in marks] == marks
    assert ids[0] == marks[0]
    assert ids[-1] == marks[2]


@pytest.mark.parametrize("template", BUILT_IN.values(), ids=BUILT_IN)
def test_a_model_without_its_tokens_is_refused(template: FillInMiddle) -> None:
    """Written in letters they would only be odd text, and the completion nonsense."""
    for missing in range(3):
        backend = byte_level_backend()
        there = [token for rank, token in enumerate(template) if rank != missing]
        backend.add_special_tokens([AddedToken(token, special=True) for token in there])
        with pytest.raises(ConfigError) as caught:
            tokenizer_with(backend, template)
        token = list(template)[missing]
        assert str(caught.value) == f"--completion-template: the model has no token {token!r}"
