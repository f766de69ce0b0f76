"""`FillInMiddle`: a prompt and a suffix as the one prompt from which a model writes the middle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import astuple, frozen

from trioserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEPARATOR = ","


@frozen
class FillInMiddle:
    """The tokens that a model was trained to see around the two parts, each one of its own.

    The order is prefix, suffix, middle, which all models named here were trained on.
    """

    before: str
    """Stands before the prompt."""
    middle: str
    """Stands between prompt and suffix."""
    after: str
    """Stands after the suffix: the missing part comes next."""

    def __iter__(self) -> Iterator[str]:
        return iter(astuple(self))

    def join(self, prompt: str, suffix: str) -> str:
        """The text that the model is to continue."""
        return f"{self.before}{prompt}{self.middle}{suffix}{self.after}"


BUILT_IN = {
    # deepseek-ai/deepseek-coder-6.7b-base; the bars are U+FF5C, the blanks U+2581. The hole is
    # where the middle belongs, and so comes before the suffix.
    "deepseek_coder": FillInMiddle("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    # bigcode/starcoder and bigcode/starcoder2
    "star_coder": FillInMiddle("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    # Qwen/Qwen2.5-Coder
    "qwen_coder": FillInMiddle("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
}


def read_completion_template(setting: str) -> FillInMiddle:
    """The template of a built-in name, or of three tokens. Raises ConfigError."""
    if setting in BUILT_IN:
        return BUILT_IN[setting]
    tokens = setting.split(_SEPARATOR)
    if len(tokens) != 3 or not all(tokens):
        raise ConfigError(
            f"--completion-template must be {', '.join(BUILT_IN)} or three tokens "
            f"BEFORE{_SEPARATOR}MIDDLE{_SEPARATOR}AFTER, got {setting}"
        )
    return FillInMiddle(*tokens)
