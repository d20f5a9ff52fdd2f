"""Where a request stops matching what was sent before it, why, and what that costs over a log."""
