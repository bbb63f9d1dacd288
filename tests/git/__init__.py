"""Repositories read without git."""
