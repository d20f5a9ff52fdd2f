"""Whether an answer may be served: what speaks for it, how probable it is, what is proven."""
