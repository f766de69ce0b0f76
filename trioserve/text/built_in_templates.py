"""Chat templates for models that bring none, by name, and the reading of `--chat-template`."""

from __future__ import annotations

from pathlib import Path

from trioserve.errors import ConfigError

_CHATML = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""

# As published with Meta-Llama-3-8B-Instruct: words are trimmed, and BOS stands at the front once.
_LLAMA_3 = """\
{{- bos_token | default('<|begin_of_text|>') -}}
{%- for message in messages -%}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' -}}
    {{- message.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
{%- endif -%}
"""

BUILT_IN = {"chatml": _CHATML, "llama-3": _LLAMA_3}


def read_chat_template(setting: str) -> str:
    """The source of a built-in template, or of the file of that name. Raises ConfigError."""
    if setting in BUILT_IN:
        return BUILT_IN[setting]
    try:
        return Path(setting).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"--chat-template {setting}: there is no such file, and the built-in templates are "
            f"{', '.join(BUILT_IN)}"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"--chat-template {setting} cannot be read: {error}") from error
