"""Stable prefixes under lock: what they were when they were accepted, and what changed."""
