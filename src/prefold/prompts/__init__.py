"""What a request is: prompts, their parts, and their text."""
