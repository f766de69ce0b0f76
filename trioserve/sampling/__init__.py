"""Sampling: logits in, one token a row out.

May be called by `runner` on the device's thread. Must not import trio, nor any room but `core` and
`device`. Nothing here keeps state between calls: a draw is a function of the logits and of
(seed, sample index, position) alone.
"""
