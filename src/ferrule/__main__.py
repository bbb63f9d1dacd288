"""`python -m ferrule`."""

import sys

from ferrule.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
