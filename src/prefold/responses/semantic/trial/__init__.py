"""How much could be served of labelled data, and how much of it would be wrong."""
