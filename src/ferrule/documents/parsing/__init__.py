"""Runs alone, as the package `parsing`, without ferrule and with whatever Python it is given."""
