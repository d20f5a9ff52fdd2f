"""Where a provider's cache markers go in a request, and whether they pay."""
