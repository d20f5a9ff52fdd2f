"""What varies in prompts, how often, and the order in which most of them is cached."""
