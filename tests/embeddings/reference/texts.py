"""Texts whose vectors are compared with sentence-transformers' own."""

_SENTENCE = "The quick brown fox jumps over the lazy dog, and nobody is surprised. "

TEXTS = (
    "Hello",
    "a",
    "What is the capital of France?",
    "Paris is the capital and the largest city of France.",
    "def main():\n    return {'a': 1, \"b\": [2, 3]}\n",
    "  spaces   and\ttabs\r\nand new lines   ",
    "SHOUTING and Whispering, CamelCase and snake_case",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Ein Häuschen kostet 1.234.567,89 € — naïve café façade",
    "北京は中国の首都です。東京は日本の首都です。",
    "مرحبا بالعالم नमस्ते दुनिया Здравствуй, мир שלום עולם",
    "👩‍👩‍👧‍👦 🇨🇿 🙂 ﬁne ½ ℃ e\u0301 \u200b zero width",
    "Special words of the tokenizer: [CLS] [SEP] [MASK] [PAD] [UNK]",
    "supercalifragilisticexpialidocious antidisestablishmentarianism" + "x" * 120,
    _SENTENCE * 3,
    _SENTENCE * 15,
    "word " * 254,  # with [CLS] and [SEP] as long as the model takes
)
