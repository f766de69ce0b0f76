"""`--chat-template`: the built-in templates, and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trioserve.errors import ConfigError
from trioserve.text.built_in_templates import read_chat_template
from trioserve.text.chat_template import ChatTemplate

if TYPE_CHECKING:
    from pathlib import Path

    from trioserve.text.tokenizer import Tokenizer

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
USER = {"role": "user", "content": "What is the capital of France?"}
CHATML_TEXT = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\n"
)
LLAMA_3_TEXT = (
    "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)


@pytest.mark.row("S-N-007")
@pytest.mark.parametrize(("name", "text"), [("chatml", CHATML_TEXT), ("llama-3", LLAMA_3_TEXT)])
def test_a_built_in_template_writes_what_its_models_were_trained_on(name: str, text: str) -> None:
    template = ChatTemplate(read_chat_template(name), NAMES)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert template.render(messages) == text
    without = template.render(messages, add_generation_prompt=False)
    assert text.startswith(without)
    assert "assistant" not in without
    if name == "llama-3":
        nameless = ChatTemplate(read_chat_template(name), {})
        assert nameless.render(messages) == text.replace("<s>", "<|begin_of_text|>")
        spaced = [{"role": "user", "content": "  Hi\n"}]
        assert "\n\nHi<|eot_id|>" in template.render(spaced)


def test_the_built_in_chatml_equals_a_published_one(smollm: Tokenizer) -> None:
    """The default model's own is ChatML with a system prompt of its own."""
    ours = ChatTemplate(read_chat_template("chatml"), NAMES)
    messages = [{"role": "system", "content": "Be brief."}, USER]
    assert ours.render(messages) == smollm.render_chat(messages)


def test_a_setting_that_is_no_name_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("é{{ messages[0].content }}\n", encoding="utf-8")
    assert ChatTemplate(read_chat_template(str(path)), {}).render([USER]) == f"é{USER['content']}"
    for setting, message in (
        ("nowhere", "there is no such file, and the built-in templates are chatml, llama-3"),
        (str(tmp_path), "cannot be read: "),
    ):
        with pytest.raises(ConfigError) as caught:
            read_chat_template(setting)
        assert str(caught.value).startswith(f"--chat-template {setting}")
        assert message in str(caught.value)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_chat_template(str(path))
