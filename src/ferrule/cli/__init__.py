"""The command `ferrule`. `main.py` lists the commands; each is one module in `commands/`."""
