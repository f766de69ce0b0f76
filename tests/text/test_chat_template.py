"""Chat templates: rendered as transformers does it, messages adapted to what each one reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from trioserve.errors import ConfigError
from trioserve.text.chat_template import ChatTemplate, ChatTemplateError, ChatTemplateMissing
from trioserve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
USER = {"role": "user", "content": "What is the capital of France?"}
CONVERSATIONS: list[list[dict[str, Any]]] = [
    [USER],
    [{"role": "system", "content": "Be brief."}, USER],
    [
        USER,
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "And of Česko?"},
    ],
    [{"role": "user", "content": " <b>&amp;\n\"quoted\" 'text' 🙂 {{ x }} {% y %} "}],
    [{"role": "user", "content": ""}],
    [USER, {"role": "assistant", "content": None, "name": "bot"}],
]
# Each leans on another of the habits that published templates have.
TEMPLATES = {
    "blocks are trimmed": """
        {%- for message in messages %}
            {% if message.content is defined %}
        {{ bos_token }}[{{ message['role'] }}]{{ message.content | trim }}{{ eos_token }}
            {% endif %}
        {% endfor %}
        {%- if add_generation_prompt %}[assistant]{% endif %}
    """,
    "loop controls": """{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}
{{ loop.index }}:{{ m.content }}{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}""",
    "JSON without HTML escapes": """{{ messages | tojson }}{{ messages | tojson(indent=2) }}
{{ {'z': 1, 'a': '<é>'} | tojson }}{{ {'z': 1, 'a': 2} | tojson(sort_keys=true) }}""",
    "generation marks": """{% for m in messages %}{% generation %}{% set x = m.role %}{{ x }}
{% endgeneration %}{{ x is defined }}{% endfor %}""",
    "namespaces and macros": """{% set ns = namespace(last='') %}{% macro line(m) %}<{{ m.role }}>
{% endmacro %}{% for m in messages %}{% set ns.last = m.role %}{{ line(m) }}{% endfor %}
{{ ns.last }}{{ messages[::-1][0].role }}{{ dict(a=1).items() | list }}""",
    "absent tools": "{% if tools %}tools{% endif %}{{ tools is none }}{{ documents is none }}",
    "undefined names": "[{{ nothing }}{{ messages[0].nothing }}{{ pad_token }}]",
    "today": "{{ strftime_now('%Y') }}",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("is_prompting", [True, False])
def test_rendering_equals_that_of_transformers(template: str, is_prompting: bool) -> None:
    ours = ChatTemplate(template, NAMES)
    for messages in CONVERSATIONS:
        present = [{k: v for k, v in message.items() if v is not None} for message in messages]
        (expected,), _ = render_jinja_template(
            conversations=[present],
            chat_template=template,
            add_generation_prompt=is_prompting,
            **NAMES,
        )
        assert ours.render(messages, add_generation_prompt=is_prompting) == expected


def test_the_default_model_is_prompted_as_transformers_prompts_it(
    smollm: Tokenizer, smollm_directory: Path
) -> None:
    reference = AutoTokenizer.from_pretrained(str(smollm_directory))
    for messages in CONVERSATIONS[:-1]:
        expected = reference.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        assert smollm.encode_chat(messages) == expected
        assert smollm.render_chat(messages) == reference.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )


def test_bos_is_written_by_the_template_alone(make_directory: Callable[..., Path]) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    config = {"bos_token": "<bos>", "chat_template": template}
    tokenizer = Tokenizer.from_directory(make_directory("byte_level", tokenizer_config=config))
    ids = tokenizer.encode_chat([USER])
    assert ids == tokenizer.encode(USER["content"])
    assert ids.count(ids[0]) == 1


def test_parts_are_joined_for_templates_that_read_a_string() -> None:
    template = ChatTemplate("{% for m in messages %}[{{ m.content }}]{% endfor %}", {})
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert template.render([{"role": "user", "content": parts}]) == "[one\ntwo]"


@pytest.mark.parametrize(
    "loop",
    [
        "{% for p in m['content'] %}{{ p['text'] }};{% endfor %}",
        "{% for p in m.content | list if p.type == 'text' %}{{ p.text }};{% endfor %}",
        "{% set content = m.content %}{% for p in content %}{{ p.text }};{% endfor %}",
    ],
)
def test_templates_that_iterate_parts_get_the_list(loop: str) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "user", "content": parts}, {"role": "user", "content": "plain"}]
    strict = ChatTemplate(f"{{% for m in messages %}}{loop}{{% endfor %}}", {})
    assert strict.render(messages) == "one;two;plain;"
    both = f"{{% if m.content is string %}}{{{{ m.content }}}}{{% else %}}{loop}{{% endif %}}"
    template = ChatTemplate(f"{{% for m in messages %}}{both}{{% endfor %}}", {})
    assert template.render(messages) == "one;two;plain"


def test_developer_becomes_system_unless_the_template_knows_the_role() -> None:
    messages = [{"role": "developer", "content": "x"}]
    plain = "{% for m in messages %}{{ m.role }}{% endfor %}"
    assert ChatTemplate(plain, {}).render(messages) == "system"
    knowing = plain + "{% if messages[0].role == 'developer' %}!{% endif %}"
    assert ChatTemplate(knowing, {}).render(messages) == "developer!"
    assert messages == [{"role": "developer", "content": "x"}]


@pytest.mark.parametrize(
    ("template", "detail"),
    [
        ("{{ raise_exception('Roles must\n  alternate') }}", "Roles must alternate"),
        ("{{ messages[0].content.nothing.more }}", "has no attribute 'nothing'"),
        ("{{ 'a' + none }}", "can only concatenate str"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% for i in range(10 ** 9) %}x{% endfor %}", "Range too big"),
        ("{{ messages.__class__.__mro__ }}", "is unsafe"),
        ("{{ messages.append(1) }}", "is unsafe"),
        ("{% include 'other' %}", "no loader"),
        ("{{ raise_exception('') }}", "TemplateError"),
    ],
)
def test_a_failing_template_fails_the_request_with_one_short_line(
    template: str, detail: str
) -> None:
    compiled = ChatTemplate(template, {})
    with pytest.raises(ChatTemplateError) as caught:
        compiled.render([USER])
    assert detail in caught.value.detail
    assert "\n" not in caught.value.detail


def test_a_long_complaint_is_clipped() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        ChatTemplate("{{ raise_exception(messages[0].content) }}", {}).render(
            [{"role": "user", "content": "x" * 10_000}]
        )
    assert len(caught.value.detail) == 200


def test_a_template_that_is_not_jinja_is_refused_at_start() -> None:
    for source in ("{% if x %}\n{% nonsense %}", "\n{{ none | nothing }}"):
        with pytest.raises(ConfigError, match=r"chat template is not valid: .* \(line 2\)$"):
            ChatTemplate(source, {})


def test_a_model_without_a_template_cannot_render_messages(byte_level: Tokenizer) -> None:
    assert not byte_level.has_chat_template
    with pytest.raises(ChatTemplateMissing):
        byte_level.encode_chat([USER])


def test_the_template_file_comes_before_the_config_and_a_list_has_a_default(
    make_directory: Callable[..., Path],
) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    directory = make_directory("byte_level", tokenizer_config={"chat_template": named})
    assert Tokenizer.from_directory(directory).render_chat([USER]) == "plain"
    (directory / "chat_template.jinja").write_text("from the file")
    assert Tokenizer.from_directory(directory).render_chat([USER]) == "from the file"
    assert json.loads((directory / "tokenizer_config.json").read_text())["chat_template"] == named


@pytest.mark.row("S-N-011")
@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}",
        "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</s>\n{% endfor %}",
        "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %};{% endfor %}",
    ],
)
@pytest.mark.parametrize("words", ["It is", "It is ", "", "[assistant]", "Hi", "two\n\nlines\n"])
def test_an_open_message_ends_the_text_as_it_does_in_transformers(
    template: str, words: str
) -> None:
    ours = ChatTemplate(template, NAMES)
    content: Any = words
    if "m.content %}" in template:
        content = [{"type": "text", "text": words}]
    hi = [{"type": "text", "text": "Hi"}] if isinstance(content, list) else "Hi"
    messages = [{"role": "user", "content": hi}, {"role": "assistant", "content": content}]
    text = ours.render(messages, continues_final_message=True)
    assert text.rstrip().endswith(words.strip())
    closed = ours.render(messages, add_generation_prompt=False)
    assert closed.startswith(text.rstrip())
    assert len(closed) > len(text)
    if words.strip():
        (expected,), _ = render_jinja_template(
            conversations=[messages],
            chat_template=template,
            continue_final_message=True,
            **NAMES,
        )
        assert text == expected
    assert messages[1]["content"] == content, "the client's message was changed"


def test_an_open_message_without_parts_is_open_at_its_start() -> None:
    loop = "{% for m in messages %}{{ m.role }}:{% for p in m.content %}{{ p.text }}{% endfor %};"
    template = ChatTemplate(f"{loop}{{% endfor %}}", {})
    messages: list[dict[str, Any]] = [USER, {"role": "assistant", "content": []}]
    text = template.render(messages, continues_final_message=True)
    assert text == f"user:{USER['content']};assistant:"


@pytest.mark.row("S-N-011")
def test_variables_are_what_the_template_reads_and_never_what_it_is_always_given() -> None:
    template = ChatTemplate("{{ x | default('none') }}{{ bos_token }}{{ tools is none }}", NAMES)
    assert template.render([USER]) == "none<s>True"
    given = {"x": {"a": [1]}, "tools": [1], "bos_token": "<b>", "self": 1, "messages": []}
    assert template.render([USER], variables=given) == "{'a': [1]}<b>True"


def test_a_variable_may_break_its_own_request_alone() -> None:
    template = ChatTemplate("{% for i in range(2) %}{{ i }}{% endfor %}", {})
    with pytest.raises(ChatTemplateError):
        template.render([USER], variables={"range": 5})
    assert template.render([USER]) == "01"
