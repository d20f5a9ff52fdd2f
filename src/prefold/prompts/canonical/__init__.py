"""Requests that mean the same, made the same."""
