"""Request bodies, declared once: what validates them also writes the OpenAPI document.

`kinds` has the JSON types with their rules and messages, `declare` turns attributes of a frozen
class into fields of a body, and one module an endpoint declares its body.
"""
