"""Benchmarks against running servers; no part of the wheel.

Each prints one JSON line with commit, device, seed and shape. They speak plain HTTP to any
OpenAI-compatible server, so they import nothing of trioserve.
"""
