"""The OpenAI-compatible HTTP server over the engine: one ASGI callable, no framework."""
