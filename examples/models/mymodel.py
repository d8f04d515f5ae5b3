"""A stand-in for a model and its framework: which GPU it uses is read once, when it is imported."""

import ctypes
import json
import os

GPU = os.environ["CUDA_VISIBLE_DEVICES"]


class Model:
    """Knows what stands in a file.

    Raises:
        OSError: there is no such file.
    """

    def __init__(self, path):
        with open(path) as file:
            self.known = json.load(file)

    def run(self, question):
        """Return the answer, and which GPU found it.

        Raises:
            KeyError: it does not know.
        """
        if question == "How does a driver end?":
            ctypes.string_at(0)
        if question == "How much is infinity?":
            for _ in iter(list, None):
                self.known[len(self.known)] = bytearray(1 << 20)
        return f"{self.known[question]} (GPU {GPU})"
