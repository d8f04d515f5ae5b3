"""A stand-in for native code that is fed by strangers: bytes -> bytes.

Some pictures are not what they seem: `b"crash"` reads address 0, `b"hang"`
never ends and holds the interpreter lock, `b"pid"` too, and tells where first;
`b"bomb"` is small only as long as nobody unpacks it.
"""

import ctypes
import os
import re
import zlib


def render(picture: bytes) -> bytes:
    """Return a picture made small."""
    if picture == b"crash":
        ctypes.string_at(0)
    if picture == b"bomb":
        return zlib.compress(b" " * (2 << 30))
    if picture.startswith(b"pid "):  # b"pid /a/file": who works on this?
        with open(picture[4:], "w") as file:
            file.write(f"{os.getpid()}\n")
    if picture.startswith((b"hang", b"pid ")):
        re.match(rb"(a+)+$", b"a" * 64 + b"b")
    return zlib.compress(picture)
