"""Documents and pages as text, by parsers in processes of their own: what they read is somebody else's."""
