"""``python -m farmctl`` is ``farmctl``."""

import sys

from farmctl.cli import main

if __name__ == "__main__":
    sys.exit(main())
