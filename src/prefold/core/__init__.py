"""Pure algorithms: token runs, block keys, the radix tree, eviction, the cache. No torch, no clock, no network."""
