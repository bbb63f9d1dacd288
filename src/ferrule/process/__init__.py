"""Run one process well."""
