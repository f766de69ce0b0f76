"""Decides what the next step computes: admission, chunked prefill, decode, preemption.

Called by the engine alone. Pure Python: imports neither torch nor trio, and no room but `kv`,
`core` and `errors`. Everything here runs on the event loop's thread between two checkpoints.
"""
