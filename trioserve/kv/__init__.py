"""The KV page pool: who holds which page, and when a page may be used again.

Called by the scheduler and the engine. Pure Python: imports neither torch nor trio, and no room
but `core` and `errors`. The pages' contents live with the model; here are only their numbers.
"""
