"""`python -m ptss_mp`, and the script `ptss-mp`."""

import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Before a command handles it and after: nothing is at stake, and a traceback would tell nobody anything.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from ptss_mp.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
