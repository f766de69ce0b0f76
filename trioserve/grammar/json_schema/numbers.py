"""Rules for numbers in a range: decimal, without an exponent where there is a bound.

No more digits than 64-bit integers and doubles hold, so what a client reads is what was bounded.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from trioserve.grammar.errors import GrammarError
from trioserve.grammar.json_schema.nodes import Numbers
from trioserve.grammar.rules import Rules, either

MAX_INTEGER_DIGITS = 18
MAX_WHOLE_DIGITS = 15
MAX_FRACTION_DIGITS = 15
_USUAL_WHOLE_DIGITS = 9
"""Where one side has no bound."""
_BOUNDED_FRACTION_DIGITS = 6
MAX_LISTED = 512
_MODULO_DIGITS = 9
MAX_MODULUS = 128

INTEGER = f'("-"? ("0" | [1-9] [0-9]{{0,{MAX_INTEGER_DIGITS - 1}}}))'
NUMBER = (
    f'("-"? ("0" | [1-9] [0-9]{{0,{MAX_WHOLE_DIGITS - 1}}}) '
    f'("." [0-9]{{1,{MAX_FRACTION_DIGITS}}})? ([eE] [+\\-]? [0-9]{{1,2}})?)'
)


def write_numbers(numbers: Numbers, rules: Rules) -> str | None:
    """An expression for them; None if there is none. Raises GrammarError."""
    if numbers.multiple is not None and numbers.multiple != 1:
        return _multiples(numbers, rules)
    if numbers.low is None and numbers.high is None:
        return INTEGER if numbers.is_integer or numbers.multiple else NUMBER
    if numbers.is_integer or numbers.multiple:
        low, high = _whole_bounds(numbers)
        return _integers(low, high)
    return _decimals(numbers)


def _whole_bounds(numbers: Numbers) -> tuple[int, int]:
    most = 10**MAX_INTEGER_DIGITS - 1
    low, high = -most, most
    if numbers.low is not None:
        low = int(numbers.low.to_integral_value(ROUND_CEILING))
        low += numbers.is_low_open and low == numbers.low
    if numbers.high is not None:
        high = int(numbers.high.to_integral_value(ROUND_FLOOR))
        high -= numbers.is_high_open and high == numbers.high
    return max(low, -most), min(high, most)


def _integers(low: int, high: int) -> str | None:
    options = []
    if low <= high and low < 0:
        options.append(f'("-" {either(_naturals(max(1, -high), -low))})')
    if high >= 0:
        options += _naturals(max(0, low), high)
    return either(options) if options and low <= high else None


def _naturals(low: int, high: int) -> list[str]:
    """Numbers from `low` on, which is not negative, by how many digits they have."""
    options = []
    for length in range(len(str(low)), len(str(high)) + 1):
        least = max(low, 10 ** (length - 1) if length > 1 else 0)
        most = min(high, 10**length - 1)
        if least <= most:
            options.append(_digits(str(least), str(most)))
    return options


def _digits(low: str, high: str) -> str:
    """Numbers of as many digits as both have."""
    if not low:
        return '""'
    rest = len(low) - 1
    if low == "0" * len(low) and high == "9" * len(low):
        return f"[0-9]{{{len(low)}}}"
    if low[0] == high[0]:
        return f'("{low[0]}" {_digits(low[1:], high[1:])})' if rest else f'"{low[0]}"'
    if not rest:
        return f"[{low}-{high}]"
    options = [f'("{low[0]}" {_digits(low[1:], "9" * rest)})']
    if int(high[0]) - int(low[0]) > 1:
        options.append(f"([{int(low[0]) + 1}-{int(high[0]) - 1}] [0-9]{{{rest}}})")
    options.append(f'("{high[0]}" {_digits("0" * rest, high[1:])})')
    return either(options)


def _decimals(numbers: Numbers) -> str | None:
    known = max(abs(bound) for bound in (numbers.low, numbers.high) if bound is not None)
    is_usual = known < 10**_USUAL_WHOLE_DIGITS
    limit = Decimal(10) ** (_USUAL_WHOLE_DIGITS if is_usual else MAX_WHOLE_DIGITS) - 1
    low = -limit if numbers.low is None else max(numbers.low, -limit)
    high = limit if numbers.high is None else min(numbers.high, limit)
    is_low_open = numbers.is_low_open and low == numbers.low
    is_high_open = numbers.is_high_open and high == numbers.high
    options: list[str] = []
    if low < 0:
        least, is_least_open = (-high, is_high_open) if high < 0 else (Decimal(0), True)
        negative = _positive_decimals(least, -low, is_least_open, is_low_open)
        if negative:
            options.append(f'("-" {either(negative)})')
    if high >= 0:
        least, is_least_open = (low, is_low_open) if low >= 0 else (Decimal(0), False)
        options += _positive_decimals(least, high, is_least_open, is_high_open)
    return either(options) if options else None


def _positive_decimals(
    low: Decimal, high: Decimal, is_low_open: bool, is_high_open: bool
) -> list[str]:
    """Numbers between two that are not negative: by their whole part, then by their fraction."""
    whole_low, whole_high = int(low), int(high)
    used = max(-_exponent(low), -_exponent(high), 0)
    # A double tells 15 digits apart; one more might be rounded onto an open bound.
    most = max(0, MAX_FRACTION_DIGITS - len(str(whole_high)))
    num_digits = min(max(_BOUNDED_FRACTION_DIGITS, used + 2), most)
    if used > num_digits:
        raise GrammarError("a bound with so many digits is not supported")
    low_digits = _fraction(low, num_digits)
    high_digits = _fraction(high, num_digits)
    free = f'("." [0-9]{{1,{num_digits}}})?' if num_digits else '""'
    options: list[str] = []

    def add(whole: int, fraction: str | None) -> None:
        if fraction is not None:
            options.append(f'("{whole}" {fraction})')

    if whole_low == whole_high:
        add(whole_low, _fractions(low_digits, high_digits, is_low_open, is_high_open))
        return options
    add(whole_low, _fractions(low_digits, None, is_low_open, False))
    if whole_high - whole_low > 1:
        options += [f"({o} {free})" for o in _naturals(whole_low + 1, whole_high - 1)]
    add(whole_high, _fractions(None, high_digits, False, is_high_open))
    return options


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), f"not a finite number: {number}"
    return exponent


def _fraction(number: Decimal, num_digits: int) -> str:
    """The digits behind the point."""
    scaled = int((number - int(number)).scaleb(num_digits))
    return str(scaled).zfill(num_digits) if num_digits else ""


def _fractions(
    low: str | None, high: str | None, is_low_open: bool, is_high_open: bool
) -> str | None:
    """What may follow the whole part; None if nothing may, not even its end."""
    num_digits = len(low or high or "")
    tail = _tail(low, high, is_low_open, is_high_open, num_digits)
    if tail is None:
        return None
    more, can_end = tail
    if more is None:
        return '""'
    return f'("." {more})?' if can_end else f'("." {more})'


def _tail(
    low: str | None, high: str | None, is_low_open: bool, is_high_open: bool, num_left: int
) -> tuple[str | None, bool] | None:
    """Digits that may follow, if any, and whether the number may end instead.

    `low` and `high` are the digits still to be compared with; None where they do not matter any
    more. The result is None where there is neither.
    """
    can_end = not (low is not None and (low.strip("0") or is_low_open)) and not (
        high is not None and not high.strip("0") and is_high_open
    )
    if low is None and high is None:
        return (f"[0-9]{{1,{num_left}}}" if num_left else None), True
    options: list[str] = []
    first = int(low[0]) if low else 0
    last = int(high[0]) if high else 9
    if num_left:
        loose = [
            digit
            for digit in range(first, last + 1)
            if not (low and digit == first) and not (high and digit == last)
        ]
        if loose:
            rest = f" [0-9]{{0,{num_left - 1}}}" if num_left > 1 else ""
            options.append(f"([{loose[0]}-{loose[-1]}]{rest})")
        for digit in sorted({first, last} - set(loose)):
            if not first <= digit <= last:
                continue
            found = _tail(
                low[1:] if low and digit == first else None,
                high[1:] if high and digit == last else None,
                is_low_open,
                is_high_open,
                num_left - 1,
            )
            if found is None:
                continue
            more, is_end = found
            then = "" if more is None else f" {more}?" if is_end else f" {more}"
            options.append(f'("{digit}"{then})')
    if not options and not can_end:
        return None
    return (either(options) if options else None), can_end


def _multiples(numbers: Numbers, rules: Rules) -> str | None:
    assert numbers.multiple is not None
    modulus = numbers.multiple
    if numbers.low is not None and numbers.high is not None:
        low, high = _whole_bounds(numbers)
        first = -(-low // modulus) * modulus
        if (high - first) // modulus < MAX_LISTED:
            listed = [f'"{number}"' for number in range(first, high + 1, modulus)]
            return either(listed) if listed else None
    if numbers.low is None and numbers.high is None and modulus <= MAX_MODULUS:
        return f'("0" | ("-"? {_modulo(modulus, rules)}))'
    raise GrammarError("multipleOf with this range is not supported")


def _modulo(modulus: int, rules: Rules) -> str:
    """Numbers of a few digits without a leading zero, by what they leave when divided."""
    names: dict[tuple[int, int], str | None] = {}

    def name_of(left: int, num_left: int) -> str | None:
        """A rule for up to so many more digits; None where no multiple can be reached."""
        if (left, num_left) not in names:
            options = ['""'] if left == 0 else []
            options += [
                f'("{digit}" {then})'
                for digit in range(10 if num_left else 0)
                if (then := name_of((left * 10 + digit) % modulus, num_left - 1))
            ]
            names[left, num_left] = rules.add(" | ".join(options), "m") if options else None
        return names[left, num_left]

    first = [(digit, name_of(digit % modulus, _MODULO_DIGITS - 1)) for digit in range(1, 10)]
    return either([f'("{digit}" {then})' for digit, then in first if then])
