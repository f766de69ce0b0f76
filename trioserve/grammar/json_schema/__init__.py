"""JSON schemas (2020-12) as grammars: every keyword is enforced, or the schema is refused.

    document   reads a schema, keyword by keyword, into alternatives   → nodes
    meet       what is valid for two of them at once, exactly
    write      rules for what is left: one way to write each value

What may be generated is a subset of what is valid, never more: properties come in the order of the
schema, numbers have no more digits than a double holds, and whitespace is bounded.

Pure Python: neither xgrammar nor trio. It runs in the child process that compiles grammars.
"""
