"""One module per command, imported when it is called: `main(arguments) -> exit code`. `cli/main.py` lists them."""
