"""Kills at any moment: what is left on disk is whole, and the session goes on."""
