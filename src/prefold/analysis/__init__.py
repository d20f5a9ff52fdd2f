"""Where tokens are recomputed, why, and what that costs: logs, a simulator of caches, attribution, report, doctor."""
