"""The report: one self-contained page, a terminal summary, JSON."""
