"""Text: from messages to token ids, and from token ids back to text that a client may see.

Purpose: the tokenizer and its chat template on the way in; incremental detokenization and the
search for stop strings and patterns on the way out. `Tokenizer` is shared by all requests and does
not change once made; a `TextAssembler` belongs to one choice of one request.

Callers: `api` (rendering, encoding, assembling) and `engine` (stops while tokens come in).

Must not import: torch, trio, or any room of this project but `core` and `errors`. transformers only
inside the function that needs it, for directories without a tokenizer.json, since importing it
takes seconds. A test holds the import time down by checking what gets loaded.
"""
