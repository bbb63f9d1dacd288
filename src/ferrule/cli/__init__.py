"""The command `ferrule`. `main.py` holds the table of commands; each is one module in `commands/`."""
