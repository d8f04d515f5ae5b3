"""Preloaded into a warden: it takes its time in the very moments in which a job may end while it is condemned.

`PAUSE` in the environment says where: "sign" before the last look at the marker, "shoot" before the signal.
"""

import os
import signal
import time

from ptss_mp.warden import proc

PAUSE_S = 0.1

_send, _status = signal.pidfd_send_signal, proc.status


def _slow_send(fd, number, *rest):
    time.sleep(PAUSE_S)
    _send(fd, number, *rest)


def _slow_status(pid):
    time.sleep(PAUSE_S)
    return _status(pid)


if os.environ["PAUSE"] == "shoot":
    signal.pidfd_send_signal = _slow_send
else:
    proc.status = _slow_status
