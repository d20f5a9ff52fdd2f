"""The engine: a model, a paged K/V pool, a scheduler. The only place that imports torch; loaded lazily."""
