"""Regular expressions: read (`pattern`), counted and intersected (`automaton`), written as rules.

Pure Python: neither xgrammar nor trio.
"""
