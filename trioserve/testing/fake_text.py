"""`byte_tokenizer`: a real tokenizer whose token ids are the bytes of the text."""

from itertools import count

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from trioserve.text.tokenizer import Tokenizer
from trioserve.text.tokenizer_files import TokenizerFiles

EOS_ID = 256

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def _byte_letters() -> dict[str, int]:
    """Byte-level BPE writes each byte as one visible character: itself, or one moved up."""
    visible = {letter for letter in ByteLevel.alphabet() if ord(letter) < 256}
    moved = map(chr, count(256))
    return {chr(byte) if chr(byte) in visible else next(moved): byte for byte in range(256)}


def byte_tokenizer(chat_template: str | None = CHAT_TEMPLATE) -> Tokenizer:
    """Token id b is the byte b; `EOS_ID` is the one special token."""
    backend = Backend(BPE(vocab=_byte_letters(), merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = ByteLevelDecoder()
    backend.add_special_tokens([AddedToken("<eos>", special=True)])
    return Tokenizer(
        TokenizerFiles(
            backend=backend,
            named_tokens={"eos_token": "<eos>"},
            eos_token_ids=frozenset({EOS_ID}),
            chat_template=chat_template,
        )
    )
