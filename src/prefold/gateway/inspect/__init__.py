"""Whether an engine really caches prompt prefixes, and whether it is set up to: by asking it."""
