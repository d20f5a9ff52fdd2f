"""Chat templates: conversations as the text a model was trained to read, and what a template does to prefixes."""
