"""Clients of OpenAI's chat completions before upstreams with Anthropic's Messages API."""
