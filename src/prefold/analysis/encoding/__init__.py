"""From the text of a request to the ids that caches compare."""
