"""What several tests of the command line need."""

from __future__ import annotations

import pytest

from tests.cli.cli_support import Bell


@pytest.fixture
def bell(tmp_path):
    bell = Bell(tmp_path)
    yield bell
    bell.close()
