"""The same log as it would have been: in another order, with another history, with other markers."""
