"""How much of a log each tree of prompts remembers at most, so that memory does not grow with the log."""

MOST_UNITS = 1 << 23
"""Ids, 4 bytes each. No machine has K/V memory for more tokens."""
MOST_NODES = 1 << 16
"""Nodes, some 500 bytes each; they are many where prompts are short."""
