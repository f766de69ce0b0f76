"""Grammars: what a client's schema, pattern or grammar lets the model say, token by token.

May be called by `engine` and `api`; the one door to xgrammar. Must not import Quart or Hypercorn,
nor any room above it. What a client sends is translated and compiled in a child process
(`compiler`, `worker`), which can be killed; what comes back is followed by a `GrammarState` for
each choice, which the runner reads as a `TokenMask`.

JSON schemas are translated here and not by xgrammar: its own converter leaves out, with a warning
at most, what it cannot express. `docs/structured-output.md` says what is enforced and what is
refused.
"""
