"""What a gateway keeps: bytes under ids and owners, in one SQLite file. Needs the extra `gateway`."""
