from tests.cli.places import cold_place, forker, place

__all__ = ["cold_place", "forker", "place"]
