"""The only writer of serving state: admits requests, drives the device, commits what it computed.

Called by `api`, `serve` and `app`. HTTP code holds only a `RequestStream`. Imports neither quart
nor hypercorn. Everything runs on one Trio thread; state changes only between the driver's
checkpoints or in sync calls, so there are no locks.
"""
