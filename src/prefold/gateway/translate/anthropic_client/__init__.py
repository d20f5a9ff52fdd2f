"""Clients of Anthropic's Messages API before upstreams with OpenAI's chat completions."""
