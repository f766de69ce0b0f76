"""Models: where they are found, how they are converted, and the decoder that runs them.

May be called by `runner` and by tests; `python -m trioserve.model.loader` prepares models ahead of
time. Must not import trio, Quart or Hypercorn, nor any room above it: loading runs on the device's
thread or in a child process, never on the event loop.

`spec`, `loader` and `cache` do not import torch, so a wrong path is reported at once.
"""
