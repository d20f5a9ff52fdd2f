"""One address in front of every model: requests go where their prefix already is."""
