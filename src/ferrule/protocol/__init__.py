"""The vocabulary: items, specs, events, settings. No I/O, and no other Ferrule module is imported."""
