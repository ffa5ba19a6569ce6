"""`python -m upgrade_tools`: see `upgrade_tools.cli`."""

import sys

from upgrade_tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
