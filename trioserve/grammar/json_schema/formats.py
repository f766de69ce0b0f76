"""Values of `format` that are enforced; all others are annotations."""

_DATE = (
    r"[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
    r"(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
_ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
# Lengths of parts are not bounded: each character that is counted makes a grammar larger.
_LABEL = "[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_WORD = "[A-Za-z0-9_+-]+"

PATTERNS: dict[str, str] = {
    # 29 February is left out rather than the leap years counted.
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}{_ZONE}$",
    "date-time": f"^{_DATE}T{_TIME}{_ZONE}$",
    "duration": r"^P(?:[0-9]{1,4}W|[0-9]{1,4}DT[0-9]{1,4}H|[0-9]{1,4}[YMD]|T[0-9]{1,4}[HMS])$",
    "email": rf"^{_WORD}(?:\.{_WORD})*@{_HOST}$",
    "hostname": f"^{_HOST}$",
    "ipv4": rf"^{_BYTE}(?:\.{_BYTE}){{3}}$",
    "uuid": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
}

ENFORCED_FORMATS = frozenset(PATTERNS)
