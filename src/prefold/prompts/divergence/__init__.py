"""Where and why a request stops matching the one before it, what that costs, and what mends it."""
