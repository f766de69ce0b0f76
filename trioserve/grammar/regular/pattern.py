"""`parse_pattern`: a regular expression as a tree, as far as it describes a regular language.

The syntax is what ECMAScript, Python and PCRE agree on. What cannot be enforced (lookaround,
backreferences, word boundaries, anchors in the middle) is refused by name. Where the languages
disagree, what is generated is what all of them match: `\\D`, `\\W` and `\\S` are ASCII alone.
"""

from attrs import define, field, frozen

from trioserve.grammar.errors import TOO_COMPLEX, GrammarError
from trioserve.grammar.regular import charset
from trioserve.grammar.regular.charset import CharSet
from trioserve.grammar.regular.tree import (
    ANY_TEXT,
    Chars,
    Concat,
    Repeat,
    Tree,
    either_of,
)

MAX_PATTERN_CHARS = 8192
MAX_DEPTH = 100
MAX_REPEATS = 10_000


def parse_pattern(pattern: str, *, is_search: bool) -> Tree:
    """The texts that match from start to end, or that have a match in them if `is_search`.

    Raises GrammarError.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise GrammarError(TOO_COMPLEX)
    parser = _Parser(pattern.removeprefix(_IGNORE_CASE), pattern.startswith(_IGNORE_CASE))
    branches = parser.read_branches()
    if not parser.is_at_end:
        raise parser.error("an unbalanced parenthesis")
    options = []
    for branch in branches:
        tree = branch.tree
        if is_search:
            before = () if branch.has_start else (ANY_TEXT,)
            after = () if branch.has_end else (ANY_TEXT,)
            tree = Concat((*before, tree, *after))
        options.append(tree)
    return either_of(options)


@frozen
class _Branch:
    tree: Tree
    has_start: bool
    has_end: bool


_CLASSES = {"d": charset.DIGITS, "w": charset.WORD, "s": charset.SPACE}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
# Whether other characters are digits, letters or spaces is not agreed on, nor is it for these four.
_AGREED = charset.subtract(charset.ASCII, ((0x1C, 0x1F),))
_IGNORE_CASE = "(?i)"
_DOT = charset.complement(charset.NEWLINES)


@define
class _Parser:
    pattern: str
    is_case_ignored: bool
    position: int = field(init=False, default=0)
    depth: int = field(init=False, default=0)

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self.pattern)

    def error(self, what: str) -> GrammarError:
        return GrammarError(f"{what} at position {self.position}")

    def read_branches(self) -> list[_Branch]:
        """Alternatives, up to the end or a closing parenthesis."""
        branches = [self._read_branch()]
        while self._take("|"):
            branches.append(self._read_branch())
        return branches

    def _read_branch(self) -> _Branch:
        has_start = has_end = False
        parts: list[Tree] = []
        while not self.is_at_end and self._peek() not in "|)":
            if has_end:
                raise self.error("an anchor in the middle is not supported")
            if self._take("^") or self._take("\\A"):
                if parts:
                    raise self.error("an anchor in the middle is not supported")
                has_start = True
            elif self._take("$") or self._take("\\Z") or self._take("\\z"):
                has_end = True
            else:
                parts.append(self._read_repeated())
        return _Branch(parts[0] if len(parts) == 1 else Concat(tuple(parts)), has_start, has_end)

    def _read_repeated(self) -> Tree:
        tree = self._read_atom()
        bounds = self._read_quantifier()
        if bounds is None:
            return tree
        low, high = bounds
        if self._take("+"):
            raise self.error("a possessive quantifier is not supported")
        self._take("?")  # lazy: the same texts match
        if not self.is_at_end and self._peek() in "*+?":
            raise self.error("nothing to repeat")
        if high is not None and high < low:
            raise self.error("a repetition whose bounds are out of order")
        if max(low, high or 0) > MAX_REPEATS:
            raise GrammarError(TOO_COMPLEX)
        return Repeat(tree, low, high)

    def _read_quantifier(self) -> tuple[int, int | None] | None:
        for char, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(char):
                return bounds
        if self.is_at_end or self._peek() != "{":
            return None
        inner, closed, _ = self.pattern[self.position + 1 :].partition("}")
        low, comma, high = inner.partition(",")
        if not closed or not low.isdecimal() or (high and not high.isdecimal()):
            return None  # a brace that stands for itself
        if len(inner) > 12:
            raise GrammarError(TOO_COMPLEX)
        self.position += len(inner) + 2
        return int(low), int(high) if high else (None if comma else int(low))

    def _read_atom(self) -> Tree:
        char = self._next()
        match char:
            case "(":
                return self._read_group()
            case "[":
                return Chars(self._cased(self._read_class()))
            case ".":
                return Chars(_DOT)
            case "\\":
                return Chars(self._cased(self._read_escape()))
            case "*" | "+" | "?":
                raise self.error("nothing to repeat")
        return Chars(self._cased(charset.of_chars(char)))

    def _read_group(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise GrammarError(TOO_COMPLEX)
        if self._take("?"):
            self._read_group_kind()
        branches = self.read_branches()
        if not self._take(")"):
            raise self.error("a missing )")
        if any(branch.has_start or branch.has_end for branch in branches):
            raise self.error("an anchor inside a group is not supported")
        self.depth -= 1
        return either_of(branch.tree for branch in branches)

    def _read_group_kind(self) -> None:
        for mark, name in (
            ("=", "lookahead"),
            ("!", "lookahead"),
            ("<=", "lookbehind"),
            ("<!", "lookbehind"),
            (">", "an atomic group"),
        ):
            if self._take(mark):
                raise self.error(f"{name} is not supported")
        if self._take("P<") or self._take("<"):
            _, closed, _ = self.pattern[self.position :].partition(">")
            if not closed:
                raise self.error("a group's name without an end")
            self.position = self.pattern.index(">", self.position) + 1
        elif not self._take(":"):
            raise self.error("this kind of group is not supported")

    def _read_class(self) -> CharSet:
        is_negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        has_category = False
        is_first = True
        while is_first or self._peek_or_fail("]") != "]":
            is_first = False
            first, is_single = self._read_class_item()
            has_category |= not is_single
            if not self._is_range_ahead():
                ranges += first
                continue
            self._next()
            last, is_last_single = self._read_class_item()
            if not is_single or not is_last_single:
                raise self.error("a range of sets")
            if first[0][0] > last[0][0]:
                raise self.error("a range out of order")
            ranges.append((first[0][0], last[0][0]))
        self._next()
        chars = self._cased(charset.charset(ranges))
        if not is_negated:
            return charset.intersect(chars, charset.ANY)
        others = charset.complement(chars)
        return charset.intersect(others, _AGREED) if has_category else others

    def _is_range_ahead(self) -> bool:
        rest = self.pattern[self.position : self.position + 2]
        return len(rest) == 2 and rest[0] == "-" and rest[1] != "]"

    def _read_class_item(self) -> tuple[CharSet, bool]:
        """A set, and whether it is one character written as such."""
        char = self._next()
        if char == "[" and not self.is_at_end and self._peek() == ":":
            raise self.error("a POSIX class is not supported")
        if char != "\\":
            return charset.of_chars(char), True
        if not self.is_at_end and self._peek() == "b":
            self._next()
            return charset.of_chars("\b"), True
        is_category = not self.is_at_end and self._peek() in "dwsDWS"
        return self._read_escape(), not is_category

    def _read_escape(self) -> CharSet:
        char = self._next()
        if char.lower() in _CLASSES:
            chars = _CLASSES[char.lower()]
            return charset.subtract(_AGREED, chars) if char.isupper() else chars
        if char in _CONTROLS:
            return charset.of_chars(_CONTROLS[char])
        if char in "xu":
            return self._read_code(2 if char == "x" else 4)
        if char in "bB":
            raise self.error("a word boundary is not supported")
        if char in "pP":
            raise self.error("a Unicode property is not supported")
        if char.isdecimal() or char == "k":
            raise self.error("a backreference is not supported")
        if char.isascii() and char.isalpha():
            raise self.error(f"the escape \\{char} is not supported")
        return charset.of_chars(char)

    def _read_code(self, num_digits: int) -> CharSet:
        if num_digits == 4 and self._take("{"):
            digits, closed, _ = self.pattern[self.position :].partition("}")
            self.position += len(digits) + len(closed)
        else:
            digits = self.pattern[self.position : self.position + num_digits]
            self.position += num_digits
            if len(digits) < num_digits:
                digits = ""
        try:
            code = int(digits, 16)
        except ValueError:
            raise self.error("an escape without its digits") from None
        if code > charset.LAST or 0xD800 <= code <= 0xDFFF:
            raise self.error("an escape that is no character")
        return ((code, code),)

    def _cased(self, chars: CharSet) -> CharSet:
        if not self.is_case_ignored:
            return chars
        letters = charset.charset([(ord("A"), ord("Z")), (ord("a"), ord("z"))])
        swapped = [
            (ord(chr(code).swapcase()),) * 2
            for first, last in charset.intersect(chars, letters)
            for code in range(first, last + 1)
        ]
        return charset.charset([*chars, *swapped])

    def _peek(self) -> str:
        return self.pattern[self.position]

    def _peek_or_fail(self, missing: str) -> str:
        if self.is_at_end:
            raise self.error(f"a missing {missing}")
        return self._peek()

    def _next(self) -> str:
        if self.is_at_end:
            raise self.error("an unfinished pattern")
        self.position += 1
        return self.pattern[self.position - 1]

    def _take(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.position):
            return False
        self.position += len(text)
        return True
