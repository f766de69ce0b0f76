"""Real prompts: chat, code, other scripts, emoji, lists, numbers, and one of 2,000 tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"

CHATS = {
    "capital": "What is the capital of France?",
    "sort": "Write a Python function that sorts a list of dates given as strings.",
    "explain": "Explain to a ten-year-old why the sky is blue, in three sentences.",
    "list": "Give me a numbered list of five things to pack for a week in the mountains.",
    "arithmetic": "A train leaves at 14:35 and takes 2 hours and 50 minutes. When does it arrive?",
    "french": "Traduis en anglais : « Il fait beau aujourd'hui, allons au marché. »",
    "german": "Erkläre kurz, was ein Betriebssystem ist. Bitte auf Deutsch.",
    "chinese": "请用中文介绍一下北京的历史。",
    "japanese": "日本の四季について短く説明してください。",
    "russian": "Напиши короткий рассказ о коте, который любил снег.",
    "arabic": "ما هي عاصمة مصر؟ وما أشهر معالمها؟",
    "hindi": "भारत के बारे में दो वाक्य लिखिए।",
    "emoji": "Tell me a story using these: 🦊🌙🏔️ and end it with 👩‍👩‍👧‍👦🎉",
    "json": 'Answer in JSON with the keys "name" and "year": who first walked on the moon?',
}

TEXTS = {
    "prose": "The harbour was quiet that morning, and the first boat that came in carried",
    "code python": "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n    return",
    "code sql": "SELECT name, COUNT(*) AS orders\nFROM customers\nJOIN orders ON",
    "markdown": "# Shopping list\n\n1. Apples\n2. Bread\n3.",
    "digits": "1 2 4 8 16 32 64 128 256 512 1024",
    "one token": "The",
}

_LONG_NAME = "two thousand tokens"
_LONG_LEN = 2000


def tokenized_prompts(tokenizer: Tokenizer) -> dict[str, tuple[int, ...]]:
    """Every prompt as the model gets it, by name."""
    prompts = {
        name: (
            f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n"
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        )
        for name, question in CHATS.items()
    }
    ids = {name: tuple(tokenizer.encode(text).ids) for name, text in (prompts | TEXTS).items()}
    license_text = (Path(__file__).parents[2] / "LICENSE").read_text()
    ids[_LONG_NAME] = tuple(tokenizer.encode(license_text).ids[:_LONG_LEN])
    assert len(ids[_LONG_NAME]) == _LONG_LEN
    return ids
