"""K/V outside the pool: in host memory, on disk, and where other machines find it too."""
