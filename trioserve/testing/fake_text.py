"""`byte_tokenizer`: a real tokenizer whose token ids are the bytes of the text."""

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


def _letter_of_byte(byte: int, alphabet: list[str]) -> str:
    """Byte-level BPE writes each byte as one visible character: itself, or one moved up."""
    return chr(byte) if chr(byte) in alphabet else chr(256 + _hidden_bytes(alphabet).index(byte))


def _hidden_bytes(alphabet: list[str]) -> list[int]:
    return [byte for byte in range(256) if chr(byte) not in alphabet]


def byte_tokenizer(chat_template: str | None = CHAT_TEMPLATE) -> Tokenizer:
    """Token id b is the byte b; `EOS_ID` is the one special token."""
    alphabet = sorted(ByteLevel.alphabet())
    visible = [letter for letter in alphabet if ord(letter) < 256]
    backend = Backend(
        BPE(vocab={_letter_of_byte(byte, visible): byte for byte in range(256)}, merges=[])
    )
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
