"""Sampling: logits in, one token a row out, and what is read of them beside it.

May be called by `runner` on the device's thread. Must not import trio, nor any room but `core`,
`errors` and `device`. Nothing here keeps state between calls: a draw is a function of the logits,
of the tokens before it and of (seed, sample index, position) alone.
"""
