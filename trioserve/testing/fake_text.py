"""`byte_tokenizer`: a real tokenizer whose token ids are the bytes of the text."""

from functools import cache
from itertools import count

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from trioserve.text.fill_in_middle import FillInMiddle
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


def byte_tokenizer(
    chat_template: str | None = CHAT_TEMPLATE,
    *,
    more_special: tuple[str, ...] = (),
    fill_in_middle: FillInMiddle | None = None,
) -> Tokenizer:
    """Token id b is the byte b; special are `EOS_ID`, and the ids behind it for `more_special`."""
    backend = Backend(BPE(vocab=_byte_letters(), merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = ByteLevelDecoder()
    special = [AddedToken(text, special=True) for text in ("<eos>", *more_special)]
    backend.add_special_tokens(special)
    files = TokenizerFiles(
        backend=backend,
        named_tokens={"eos_token": "<eos>"},
        eos_token_ids=frozenset({EOS_ID}),
        chat_template=chat_template,
    )
    return Tokenizer(files, fill_in_middle=fill_in_middle)


@cache
def shared_byte_tokenizer() -> Tokenizer:
    """The plain one, made once a process: not to be changed."""
    return byte_tokenizer()
