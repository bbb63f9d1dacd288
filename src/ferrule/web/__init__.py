"""The web: search backends, pages as text, citations. Wire-free."""
