"""How a conversation is put into words and rows for people, whichever door shows it."""
