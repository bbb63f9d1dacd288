"""Fixtures of the store's tests."""

from tests.store.places import store

__all__ = ["store"]
