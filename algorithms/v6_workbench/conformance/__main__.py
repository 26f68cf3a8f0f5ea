"""``python -m v6_workbench.conformance METHOD``: a line for each check; exit status 1 if one fails."""

import sys

from v6_workbench.conformance.command import main

if __name__ == "__main__":
    sys.exit(main())
