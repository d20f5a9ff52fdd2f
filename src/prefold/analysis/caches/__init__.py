"""Models of caches that the simulator runs: all answer `serve`, none keeps K and V."""
