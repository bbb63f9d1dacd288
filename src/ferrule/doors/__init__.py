"""The doors through which people and programs use sessions. A door translates; no door imports another."""
