"""The CPU path in C++: attention on the pool's own layout, products with packed weights, and the loop over the layers.

`build` compiles it on first use, `library` calls it, `pool` and `decoder` are what the engine sees.
"""
