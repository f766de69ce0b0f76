"""Reading a model's directory: the same ids as transformers, and where a choice ends."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from transformers import AutoTokenizer

from trioserve.errors import ConfigError
from trioserve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROMPTS = [
    "The capital of France is",
    " two  spaces and\ttabs\n\n",
    "def f(x):\n    return x + 1  # 12345\n",
    "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "日本語のテキスト, 한국어, हिन्दी, العربية",
    "👨‍👩‍👧‍👦 🇨🇿 🙂",
    "<|im_start|>user\nHi<|im_end|>\n",
    "the <turn> marker </s>",
    "",
]


@pytest.fixture(scope="module")
def reference_smollm(smollm_directory: Path) -> Any:
    return AutoTokenizer.from_pretrained(str(smollm_directory))


def test_the_default_model_gives_the_ids_of_transformers(
    smollm: Tokenizer, reference_smollm: Any
) -> None:
    for prompt in PROMPTS:
        for is_adding in (True, False):
            ids = smollm.encode(prompt, add_special_tokens=is_adding)
            assert ids == reference_smollm.encode(prompt, add_special_tokens=is_adding)
            assert smollm.decode(ids) == reference_smollm.decode(ids, skip_special_tokens=True)
    assert smollm.vocab_size == len(reference_smollm)
    assert smollm.special_ids >= set(reference_smollm.all_special_ids)
    assert smollm.eos_token_ids == {reference_smollm.eos_token_id}


@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece"])
@pytest.mark.parametrize("has_bos_flag", [None, True, False])
def test_bos_is_added_exactly_where_transformers_adds_it(
    make_directory: Callable[..., Path], kind: str, has_bos_flag: bool | None
) -> None:
    names = {"byte_level": ("<bos>", "<eos>"), "sentencepiece": ("<s>", "</s>")}[kind]
    config: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    config |= {"bos_token": names[0], "eos_token": names[1]}
    if has_bos_flag is not None:
        config["add_bos_token"] = has_bos_flag
    directory = make_directory(kind, tokenizer_config=config)
    tokenizer = Tokenizer.from_directory(directory)
    reference = AutoTokenizer.from_pretrained(str(directory))
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt)
        assert ids == reference.encode(prompt)
        assert ids[0] == reference.bos_token_id
        bare = tokenizer.encode(prompt, add_special_tokens=False)
        assert bare == reference.encode(prompt, add_special_tokens=False)


def test_tokens_named_only_beside_tokenizer_json_are_special(
    make_directory: Callable[..., Path],
) -> None:
    def added(content: str, *, special: bool) -> dict[str, object]:
        return {
            "__type": "AddedToken",
            "content": content,
            "special": special,
            "normalized": False,
        }

    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": added("<stop>", special=True),
        "pad_token": "日本",  # known as an ordinary added token, which it stays
        "additional_special_tokens": ["<tool>"],
        "added_tokens_decoder": {
            "262": added("<later>", special=False),
            "261": added("<stop>", special=True),
        },
    }
    directory = make_directory("byte_level", tokenizer_config=config)
    tokenizer = Tokenizer.from_directory(directory)
    reference = AutoTokenizer.from_pretrained(str(directory))
    text = "a<stop>b<tool>c<later>日本"
    ids = tokenizer.encode(text)
    assert ids == reference.encode(text)
    assert tokenizer.decode(ids) == "abc<later>日本"
    assert reference.decode(ids, skip_special_tokens=True) == "abc<later>日本"
    assert tokenizer.eos_token_ids == {reference.eos_token_id}
    assert tokenizer.vocab_size == len(reference)


def test_special_tokens_map_is_read_when_the_config_lists_no_tokens(
    make_directory: Callable[..., Path],
) -> None:
    directory = make_directory("byte_level", special_tokens_map={"eos_token": {"content": "<eos>"}})
    tokenizer = Tokenizer.from_directory(directory)
    assert tokenizer.eos_token_ids == set(tokenizer.encode("<eos>", add_special_tokens=False))


def test_every_place_that_names_an_end_token_counts(make_directory: Callable[..., Path]) -> None:
    template = "{% for m in messages %}{{ m.role + ':' + m.content + '<turn>\n' }}{% endfor %}"
    directory = make_directory(
        "byte_level",
        tokenizer_config={"eos_token": "<eos>", "chat_template": template},
        config={"eos_token_id": 7, "text_config": {"eos_token_id": 8}},
        generation_config={"eos_token_id": [9, 10]},
    )
    tokenizer = Tokenizer.from_directory(directory)
    eos, turn = tokenizer.encode("<eos><turn>", add_special_tokens=False)
    assert tokenizer.eos_token_ids == {7, 8, 9, 10, eos, turn}


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}",
        "{{ raise_exception('needs tools') }}",
        "{{ messages[0].content }}",
    ],
)
def test_a_template_without_a_turn_token_names_no_end(
    make_directory: Callable[..., Path], template: str
) -> None:
    directory = make_directory("byte_level", tokenizer_config={"chat_template": template})
    assert Tokenizer.from_directory(directory).eos_token_ids == frozenset()


def test_limits_left_in_tokenizer_json_neither_cut_nor_fill_a_prompt(
    make_directory: Callable[..., Path],
) -> None:
    path = make_directory("byte_level") / "tokenizer.json"
    content = json.loads(path.read_text())
    content["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    content["padding"] = {
        "strategy": {"Fixed": 50},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<eos>",
    }
    path.write_text(json.dumps(content))
    assert len(Tokenizer.from_directory(path.parent).encode("0123456789")) == 11


def test_a_vocabulary_in_an_older_form_is_read_through_transformers(
    smollm: Tokenizer, smollm_directory: Path, tmp_path: Path
) -> None:
    model = json.loads((smollm_directory / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = ["#version: 0.2", *(" ".join(merge) for merge in model["merges"])]
    (tmp_path / "merges.txt").write_text("\n".join(merges))
    config = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|im_end|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer.from_directory(tmp_path)
    for prompt in PROMPTS[:4]:
        assert tokenizer.encode(prompt) == smollm.encode(prompt)
    assert 2 in tokenizer.eos_token_ids


def test_a_directory_without_a_tokenizer_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^no such model directory: \S*nowhere$"):
        Tokenizer.from_directory(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"^no usable tokenizer in [^\n]*$"):
        Tokenizer.from_directory(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", "[]"),
        ("generation_config.json", "\xff"),
    ],
)
def test_a_broken_file_is_named_in_one_line(
    make_directory: Callable[..., Path], name: str, content: str, tmp_path: Path
) -> None:
    directory = tmp_path / "model"
    shutil.copytree(make_directory("byte_level"), directory)
    (directory / name).write_text(content, encoding="latin-1")
    with pytest.raises(ConfigError, match=rf"^cannot read \S*{name}: [^\n]+$"):
        Tokenizer.from_directory(directory)


@pytest.mark.row("S-C-048")
@pytest.mark.case(32)
def test_a_token_is_written_as_its_text_its_bytes_or_its_name(
    smollm: Tokenizer, byte_level: Tokenizer, sentencepiece: Tokenizer
) -> None:
    ids = smollm.encode("the fox 🙂", add_special_tokens=False)
    assert b"".join(map(smollm.token_bytes, ids)).decode() == "the fox 🙂"
    assert [smollm.token_text(token_id) for token_id in ids[:2]] == ["the", " fox"]
    end = smollm.encode("<|im_end|>", add_special_tokens=False)
    assert [smollm.token_text(token_id) for token_id in end] == ["<|im_end|>"]
    first, *_ = byte_level.encode("é", add_special_tokens=False)
    assert byte_level.token_bytes(first) == b"\xc3"
    assert byte_level.token_text(first) == r"bytes:\xc3"
    assert byte_level.token_text(byte_level.encode("日本")[1]) == "日本"
    assert [sentencepiece.token_text(token_id) for token_id in (1, 3 + 0xC3, 3 + 0x41)] == [
        "<s>",
        r"bytes:\xc3",
        "A",
    ]
    assert sentencepiece.token_text(sentencepiece.encode("a")[1]) == " a"


def test_a_token_of_a_decoder_that_looks_around_is_written_as_in_the_middle(
    word_piece: Tokenizer, metaspace: Tokenizer
) -> None:
    ids = word_piece.encode("he is running [SEP] .", add_special_tokens=False)
    texts = [word_piece.token_text(token_id) for token_id in ids]
    assert texts == [" he", " is", " run", "ning", "[SEP]", "."]
    assert metaspace.token_text(5) == " the"
    assert metaspace.token_bytes(8) == "é".encode()
    assert metaspace.token_text(1) == "</s>"


def test_an_id_beyond_the_tokenizer_has_no_text(smollm: Tokenizer, metaspace: Tokenizer) -> None:
    """A model's logits may be wider than its vocabulary."""
    for tokenizer in (smollm, metaspace):
        assert tokenizer.token_text(10**6) == ""
        assert tokenizer.token_bytes(10**6) == b""


def test_a_template_given_at_start_is_used_in_place_of_the_models_own(
    make_directory: Callable[..., Path],
) -> None:
    directory = make_directory("byte_level", tokenizer_config={"chat_template": "own"})
    tokenizer = Tokenizer.from_directory(
        directory, chat_template="{% for m in messages %}{{ m.content + '<turn>' }}{% endfor %}"
    )
    assert tokenizer.render_chat([{"role": "user", "content": "x"}]) == "x<turn>"
    # Its end of turn ends a choice as well.
    assert tokenizer.eos_token_ids == set(tokenizer.encode("<turn>", add_special_tokens=False))
    with pytest.raises(ConfigError, match=r"^the chat template is not valid"):
        Tokenizer.from_directory(directory, chat_template="{% if %}")


def test_a_template_of_its_own_for_tools_is_used_with_tools_alone(
    make_directory: Callable[..., Path],
) -> None:
    listed = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "{{ tools[0].name }} in <tool_call>"},
    ]
    directory = make_directory("byte_level", tokenizer_config={"chat_template": listed})
    tokenizer = Tokenizer.from_directory(directory)
    messages = [{"role": "user", "content": "Hi"}]
    assert tokenizer.render_chat(messages) == "plain"
    assert tokenizer.render_chat(messages, tools=[{"name": "f"}]) == "f in <tool_call>"
    assert tokenizer.tool_call_format is not None
    # One that is given at start is the only one.
    given = Tokenizer.from_directory(directory, chat_template="given")
    assert given.render_chat(messages, tools=[{"name": "f"}]) == "given"
    assert given.tool_call_format is None
