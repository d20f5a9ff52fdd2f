"""Where entries, wordings, vectors and judgements are kept: SQLite, Redis or Valkey, PostgreSQL."""
