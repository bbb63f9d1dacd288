"""Making images by a server or a program of the user's; usable without a session. No model is shipped."""
