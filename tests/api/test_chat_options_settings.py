"""`--chat-template` and `--completion-template` on their way from the settings to the tokenizer."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import AddedToken

from tests.text.conftest import byte_level_backend
from trioserve.config import ServerConfig
from trioserve.engine.load import load_served_model
from trioserve.engine.served import ServedModel
from trioserve.errors import ConfigError
from trioserve.text.fill_in_middle import BUILT_IN
from trioserve.text.tokenizer import Tokenizer

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[ServerConfig]:
    """The models that were loaded: each is a tokenizer with a template of its own, and no more."""
    backend = byte_level_backend()
    tokens = (*BUILT_IN["qwen_coder"], "<A>", "<B>", "<C>")
    backend.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "own"}))
    loaded: list[ServerConfig] = []

    def load_model(config: ServerConfig, **_options: object) -> SimpleNamespace:
        loaded.append(config)
        return SimpleNamespace(
            info=None,
            runner=None,
            directory=tmp_path,
            pages=None,
            num_pages=1,
            page_size=1,
            max_step_tokens=1,
        )

    monkeypatch.setattr("trioserve.runner.load.load_model", load_model)
    monkeypatch.setattr(
        "trioserve.runner.embedding_load.is_embedding_model", lambda *_arguments: False
    )
    return loaded


def tokenizer_of(**settings: str) -> Tokenizer:
    served = load_served_model(ServerConfig(**settings), 1, threading.Event())
    assert isinstance(served, ServedModel)
    return served.tokenizer


@pytest.mark.row("S-G-005", "S-N-007")
@pytest.mark.usefixtures("loads")
def test_the_chat_template_is_the_models_own_a_built_in_or_a_file(tmp_path: Path) -> None:
    assert tokenizer_of().render_chat(MESSAGES) == "own"
    chatml = tokenizer_of(chat_template="chatml").render_chat(MESSAGES)
    assert chatml == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    path = tmp_path / "mine.jinja"
    path.write_text("mine: {{ messages[0].content }}")
    assert tokenizer_of(chat_template=str(path)).render_chat(MESSAGES) == "mine: Hi"


@pytest.mark.row("S-C-032")
@pytest.mark.usefixtures("loads")
def test_the_completion_template_is_none_a_built_in_or_three_tokens() -> None:
    assert tokenizer_of().fill_in_middle is None
    assert tokenizer_of(completion_template="qwen_coder").fill_in_middle == BUILT_IN["qwen_coder"]
    custom = tokenizer_of(completion_template="<A>,<B>,<C>").fill_in_middle
    assert custom is not None
    assert custom.join("x", "y") == "<A>x<B>y<C>"
    with pytest.raises(ConfigError, match=r"^--completion-template: the model has no token"):
        tokenizer_of(completion_template="star_coder")


@pytest.mark.parametrize(
    "settings", [{"chat_template": "nowhere"}, {"completion_template": "nonsense"}]
)
def test_a_wrong_setting_is_told_before_the_model_is_loaded(
    loads: list[ServerConfig], settings: dict[str, str]
) -> None:
    with pytest.raises(ConfigError):
        tokenizer_of(**settings)
    assert not loads
