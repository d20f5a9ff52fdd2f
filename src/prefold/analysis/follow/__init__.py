"""A log that grows: its new lines as they are written, and the breaks that they show."""
