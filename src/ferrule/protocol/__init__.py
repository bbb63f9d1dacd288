"""The vocabulary: items, specs, events, settings. No I/O, and nothing of ours is imported."""
