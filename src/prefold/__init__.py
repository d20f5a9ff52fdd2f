"""prefold: read every prompt prefix once."""

__version__ = "0.1.0"
