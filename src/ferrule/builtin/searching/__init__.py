"""Searching files for every tool that searches: ripgrep, or Python where it is not installed."""
