"""The served model's tokenizer: text and messages to ids, ids to text, and where it stops."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trioserve.text.chat_template import ChatTemplate, ChatTemplateError, ChatTemplateMissing
from trioserve.text.detokenizer import ByteDetokenizer, Detokenizer, WindowDetokenizer
from trioserve.text.token_bytes import TokenBytes
from trioserve.text.token_span import TokenSpan
from trioserve.text.tokenizer_files import TokenizerFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike


class Tokenizer:
    """Shared by all requests, one for a model; nothing in it changes after it is made.

    `vocab_size` counts added tokens (the model's logits may be wider). `special_ids` are left out
    of text by default. Sampling one of `eos_token_ids` ends a choice: those of the model's config
    and generation config, the tokenizer's own, and the token that ends an assistant's turn in the
    chat template, which some models list nowhere else.

    No method is a checkpoint. Encoding takes about a millisecond for each thousand tokens.
    """

    def __init__(self, files: TokenizerFiles) -> None:
        self._backend = files.backend
        self._token_bytes = TokenBytes.from_backend(files.backend)
        self._chat_template = (
            None
            if files.chat_template is None
            else ChatTemplate(files.chat_template, files.named_tokens)
        )
        added_tokens = files.backend.get_added_tokens_decoder()
        self.vocab_size: int = files.backend.get_vocab_size(with_added_tokens=True)
        self._span = TokenSpan.from_backend(files.backend)
        self.special_ids = frozenset(
            token_id for token_id, token in added_tokens.items() if token.special
        )
        eos_token_ids = set(files.eos_token_ids)
        id_of_added = {token.content: token_id for token_id, token in added_tokens.items()}
        if (eos_token := files.named_tokens.get("eos_token")) is not None:
            eos_token_ids.add(id_of_added[eos_token])
        eos_token_ids |= _end_of_turn_ids(self._chat_template, id_of_added)
        self.eos_token_ids = frozenset(eos_token_ids)

    @classmethod
    def from_directory(cls, directory: str | PathLike[str]) -> Tokenizer:
        """Read a model's directory: tokenizer.json and its companions, without a network.

        Raises ConfigError with one line that names what cannot be used.
        """
        return cls(TokenizerFiles.read(Path(directory)))

    @property
    def has_chat_template(self) -> bool:
        return self._chat_template is not None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`, with the tokens that the model expects around it (BOS, if any)."""
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def least_tokens(self, text: str) -> int:
        """A number of tokens that `text` has at least, found without encoding it; 0 if unknown."""
        return self._span.least_tokens(text) if self._span is not None else 0

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of all ids at once; by definition what a detokenizer's pieces join to."""
        detokenizer = self.new_detokenizer(skip_special_tokens=skip_special_tokens)
        text = "".join([detokenizer.feed(token_id) for token_id in token_ids])
        return text + detokenizer.flush()

    def new_detokenizer(self, *, skip_special_tokens: bool = True) -> Detokenizer:
        """A fresh detokenizer for one choice."""
        skipped_ids = self.special_ids if skip_special_tokens else frozenset[int]()
        if self._token_bytes is None:
            return WindowDetokenizer(self._backend, skipped_ids)
        return ByteDetokenizer(self._token_bytes, skipped_ids)

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> str:
        """The prompt text of a conversation. Raises ChatTemplateMissing or ChatTemplateError."""
        if self._chat_template is None:
            raise ChatTemplateMissing("the model has no chat template")
        return self._chat_template.render(messages, add_generation_prompt=add_generation_prompt)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The prompt ids of a conversation. The template writes BOS itself, so none is added.

        Raises ChatTemplateMissing or ChatTemplateError.
        """
        return self.encode(self.render_chat(messages), add_special_tokens=False)


def _end_of_turn_ids(template: ChatTemplate | None, id_of_added: Mapping[str, int]) -> set[int]:
    """The token that the template writes right after an assistant's words, if it is one token.

    Found by rendering a conversation and looking, since templates name it in many ways.
    """
    if template is None:
        return set()
    words = "Fine"
    conversation = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": words}]
    try:
        text = template.render(conversation, add_generation_prompt=False)
    except ChatTemplateError:
        return set()  # a template with demands of its own; the configs have to do
    end = text[text.rindex(words) + len(words) :].lstrip() if words in text else ""
    candidates = [content for content in id_of_added if end.startswith(content)]
    return {id_of_added[max(candidates, key=len)]} if candidates else set()
