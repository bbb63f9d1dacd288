"""Search in documents: chunks of them, found by their words (BM25) and by what they mean (vectors). Knows no model, no
door, no wire: who parses a document and who embeds its text is handed in. Usable without a session."""
