"""Lint: values that would change a stable prompt prefix, found in text, request bodies, logs and Python source."""
