"""Readers of request logs: each yields `Record`s, all are recognised by content."""
