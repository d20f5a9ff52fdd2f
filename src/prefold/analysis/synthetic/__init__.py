"""Logs that nobody had to send: the worked example, and traffic of eight usual kinds in good and in bad order."""
