"""The served model's tokenizer: text and messages to ids, ids to text, and where it stops."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trioserve.errors import ConfigError
from trioserve.text.chat_template import (
    NO_VARIABLES,
    ChatTemplate,
    ChatTemplateError,
    ChatTemplateMissing,
)
from trioserve.text.detokenizer import ByteDetokenizer, Detokenizer, WindowDetokenizer
from trioserve.text.token_bytes import TokenBytes
from trioserve.text.token_offsets import OffsetText, TextToken, decoded_offsets, offsets_in
from trioserve.text.token_span import TokenSpan
from trioserve.text.tokenizer_files import TokenizerFiles
from trioserve.text.tool_calls.formats import detect_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from os import PathLike

    from trioserve.text.fill_in_middle import FillInMiddle


class Tokenizer:
    """Shared by all requests, one for a model; nothing in it changes after it is made.

    `vocab_size` counts added tokens (the model's logits may be wider). `special_ids` are left out
    of text by default. Sampling one of `eos_token_ids` ends a choice: those of the model's config
    and generation config, the tokenizer's own, and the token that ends an assistant's turn in the
    chat template, which some models list nowhere else. `tool_call_format` is how the chat template
    has the model call tools, if it is a form that is known.

    No method is a checkpoint. Encoding takes about a millisecond for each thousand tokens.
    """

    def __init__(
        self,
        files: TokenizerFiles,
        *,
        chat_template: str | None = None,
        fill_in_middle: FillInMiddle | None = None,
    ) -> None:
        """`chat_template` is the source of one to use in place of the model's own.

        Raises ConfigError if a template is no Jinja, or for a `fill_in_middle` whose tokens the
        model does not have.
        """
        self._backend = files.backend
        self._token_bytes = TokenBytes.from_backend(files.backend)
        source = files.chat_template if chat_template is None else chat_template
        self._chat_template = None if source is None else ChatTemplate(source, files.named_tokens)
        self._tool_template = self._chat_template
        tool_source = files.tool_template if chat_template is None else None
        if tool_source is not None:
            self._tool_template = ChatTemplate(tool_source, files.named_tokens)
        self.tool_call_format = detect_format(tool_source or source or "")
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
        self.fill_in_middle = fill_in_middle
        for token in fill_in_middle or ():
            if self._backend.token_to_id(token) is None:
                raise ConfigError(f"--completion-template: the model has no token {token!r}")

    @classmethod
    def from_directory(
        cls,
        directory: str | PathLike[str],
        *,
        chat_template: str | None = None,
        fill_in_middle: FillInMiddle | None = None,
    ) -> Tokenizer:
        """Read a model's directory: tokenizer.json and its companions, without a network.

        Raises ConfigError with one line that names what cannot be used.
        """
        files = TokenizerFiles.read(Path(directory))
        return cls(files, chat_template=chat_template, fill_in_middle=fill_in_middle)

    @property
    def has_chat_template(self) -> bool:
        return self._chat_template is not None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`, with the tokens that the model expects around it (BOS, if any)."""
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def encode_with_offsets(self, text: str) -> OffsetText:
        """What `encode` gives, and where in the text each token begins."""
        encoding = self._backend.encode(text)
        tokens = (
            TextToken(token_id, self.token_bytes(token_id), span, bool(is_added))
            for token_id, span, is_added in zip(
                encoding.ids, encoding.offsets, encoding.special_tokens_mask, strict=True
            )
        )
        return offsets_in(text, tokens)

    def decode_with_offsets(
        self, token_ids: Sequence[int], skip_special_tokens: bool = True
    ) -> OffsetText:
        """What `decode` gives, and where in the text each token begins."""
        detokenizer = self.new_detokenizer(skip_special_tokens=skip_special_tokens)
        return decoded_offsets(token_ids, detokenizer)

    def token_bytes(self, token_id: int) -> bytes:
        """What a token alone stands for, as it would in the middle of a text.

        A special token's name; empty for an id that the tokenizer does not know.
        """
        if self._token_bytes is not None:
            return self._token_bytes.get(token_id)
        if token_id in self.special_ids:
            return (self._backend.id_to_token(token_id) or "").encode()
        # Such decoders look at what comes before: the second of two tells more than one alone.
        alone = self._backend.decode([token_id], skip_special_tokens=False)
        twice = self._backend.decode([token_id, token_id], skip_special_tokens=False)
        return twice[len(alone) :].encode()

    def token_text(self, token_id: int) -> str:
        """A token as it is written in logprobs: bytes that are no text alone by their numbers."""
        own = self.token_bytes(token_id)
        try:
            return own.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in own)

    def least_tokens(self, text: str) -> int:
        """A number of tokens that `text` has at least, found without encoding it; 0 if unknown."""
        return self._span.least_tokens(text) if self._span is not None else 0

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of all ids at once; by definition what a detokenizer's pieces join to."""
        detokenizer = self.new_detokenizer(skip_special_tokens=skip_special_tokens)
        text = "".join([detokenizer.feed(token_id) for token_id in token_ids])
        return text + detokenizer.flush()

    def special_ids_of(self, texts: Iterable[str]) -> frozenset[int]:
        """Those of these texts that are special tokens."""
        found = map(self._backend.token_to_id, texts)
        return frozenset(each for each in found if each in self.special_ids)

    def new_detokenizer(
        self, *, skip_special_tokens: bool = True, shown_ids: AbstractSet[int] = frozenset()
    ) -> Detokenizer:
        """A fresh detokenizer for one choice. `shown_ids` are special and not to be skipped."""
        skipped_ids = self.special_ids - shown_ids if skip_special_tokens else frozenset[int]()
        if self._token_bytes is None:
            return WindowDetokenizer(self._backend, skipped_ids)
        return ByteDetokenizer(self._token_bytes, skipped_ids)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continues_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> str:
        """The prompt text of a conversation; see `ChatTemplate.render`.

        Raises ChatTemplateMissing or ChatTemplateError.
        """
        template = self._tool_template if tools else self._chat_template
        if template is None:
            raise ChatTemplateMissing("the model has no chat template")
        return template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continues_final_message=continues_final_message,
            tools=tools,
            variables=variables,
        )

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
