"""`python -m ptss_mp`."""

import sys

from ptss_mp.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
