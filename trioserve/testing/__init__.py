"""The shipped test kit: a device that finishes a step when told, a model whose next token is a
function of the prefix, and wire-level HTTP clients. Imports any room; no room imports it.
"""
