"""Why the hit rate fell: a change of hit rate divided exactly over eight usual causes."""
