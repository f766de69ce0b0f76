"""The runner: loads a model, then turns each step plan into device inputs and those into tokens.

`load.load_model` may be called by the composition roots on the device's thread, `stage` by
`engine`, `launch` and `result` by the device. Must not import trio, Quart or Hypercorn: the
device's own thread has no event loop.
"""
