"""Chat Completions, in the dialects of its servers."""
