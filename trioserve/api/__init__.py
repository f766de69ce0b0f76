"""The only room that knows HTTP: routes, parsing, server-sent events, the error envelope.

Called by `app` and `serve`. Holds `RequestStream`s, never pages. Imports `engine` and `text`;
quart and hypercorn are imported here, in `app`, `serve`, `listen` and `asyncio_host` only.
"""
