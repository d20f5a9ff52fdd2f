"""Whole answers, kept for requests that are the same."""
