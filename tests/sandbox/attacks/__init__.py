"""The attacks of the escape suite."""
