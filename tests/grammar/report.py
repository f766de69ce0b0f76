"""`docs/structured-output.md`: what of JSON Schema is enforced, and how it is known.

python -m tests.grammar.report
"""

from collections import Counter
from pathlib import Path

from tests.grammar.corpus import KEYWORDS, WRITTEN, cases, cases_of
from trioserve.grammar.json_schema.formats import ENFORCED_FORMATS
from trioserve.grammar.json_schema.keywords import ENFORCED, IN_PART, OF_TYPE, REFUSED

PAGE = Path(__file__).parents[2] / "docs/structured-output.md"

_HEAD = """# Structured output

`response_format`, `json_schema`, `regex` and `ebnf` make the output what they say, token by token:
what a grammar does not allow is never sampled. The tables are written by
`python -m tests.grammar.report`; a test fails where this page is out of date.

- **Nothing is relaxed.** A JSON schema is translated keyword by keyword. What cannot be enforced
  where it stands is a 400 that names the keyword and its place. Unknown keywords are annotations.
- **A subset is generated.** Properties come in the order of the schema, and without
  `additionalProperties` no others; a schema without `type` is taken to mean the types that its
  keywords speak of; integers have at most 18 digits, other numbers 15. Where more than 64
  characters are counted, an escape (`\\n`) counts as the two that it is written with.
- **Whitespace** is at most one space, wherever JSON has it, or as many as
  `--grammar-max-spaces` says.
- **The end**: a document ends with its last character. Where a text may end or go on, the model's
  end token decides; `min_tokens` puts that off, and `ignore_eos` forbids it. A length cut leaves
  the beginning of a valid text. `stop` strings cut where they match; a `stop_token_ids` token ends
  a text where it is complete, and elsewhere only if nothing else may come.
- **Logprobs** are the model's own, as if there were no grammar.
- **Jumps**: where one continuation is left, its tokens are taken without a step. They are counted
  and streamed like any others; the output is the same as without. With logprobs or hidden states
  every token has its step.
- **Patterns** are what ECMAScript, Python and PCRE agree on. Lookaround, backreferences, word
  boundaries and Unicode properties are refused. A `regex` is for the whole text, a schema's
  `pattern` for a part of it unless it is anchored.
- **EBNF** is xgrammar's, whose first rule is named `root`.
- **Compiling** happens in a child process at the lowest priority, at most two at once, each for at
  most `--grammar-timeout` seconds and 1 GiB; a request that leaves takes its child along. One that
  got hardly any processor time until then is answered with 503, for it may be tried again. Compiled
  grammars are kept (128 MiB, the least used one goes first).
"""


def page() -> str:
    """The page's text."""
    return "\n".join([_HEAD, *_keywords(), "", *_corpus(), "", *_refusals()]) + "\n"


def _keywords() -> list[str]:
    lines = ["## Keywords", "", "| keyword | of | enforced |", "|---|---|---|"]
    for keyword in sorted(ENFORCED):
        part = "in part, else refused" if keyword in IN_PART else "yes"
        if keyword == "format":
            part = ", ".join(f"`{name}`" for name in sorted(ENFORCED_FORMATS))
            part += "; others are annotations"
        lines.append(f"| `{keyword}` | {OF_TYPE.get(keyword, 'any')} | {part} |")
    lines += [f"| `{keyword}` | | no: refused |" for keyword in sorted(REFUSED)]
    return lines


def _corpus() -> list[str]:
    num_supported = sum(case.refusal is None for case in cases())
    lines = [
        "## Schemas tried",
        "",
        "The official test suite for draft 2020-12, file by file, and schemas of tools and",
        "extraction tasks. Each one that is supported is walked through by an adversary, who takes",
        "the worst token that is allowed, and by chance; whatever comes to its end is valid.",
        "",
        "| file | schemas | supported | refused |",
        "|---|---|---|---|",
    ]
    for keyword in sorted(KEYWORDS):
        these = cases_of(keyword)
        supported = sum(case.refusal is None for case in these)
        name = keyword if keyword == WRITTEN else f"`{keyword}`"
        lines.append(f"| {name} | {len(these)} | {supported} | {len(these) - supported} |")
    num = len(cases())
    lines.append(f"| all | {num} | {num_supported} | {num - num_supported} |")
    return lines


def _refusals() -> list[str]:
    reasons = Counter(
        case.refusal.partition(" at #")[0] + (" …" if " at #" in case.refusal else "")
        for case in cases()
        if case.refusal is not None
    )
    lines = ["## Why they were refused", "", "| reason | schemas |", "|---|---|"]
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return [*lines, *(f"| {reason} | {number} |" for reason, number in ordered)]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
