"""What nobody reckoned with: is the machine full, or are we to blame?"""

from __future__ import annotations

import pytest

from ptss_mp.cli.exits import Exit
from ptss_mp.cli.main import _unexpected


def compiled(source: str, name: str) -> SyntaxError:
    with pytest.raises(SyntaxError) as caught:
        compile(source, name, "exec")
    return caught.value


def test_a_module_that_is_written_wrong_is_our_fault(tmp_path, capsys):
    """Regression: any SyntaxError was called a shortage of memory."""
    (tmp_path / "wrong.py").write_text("x = 1\ndef f(:\n")
    assert _unexpected(compiled("x = 1\ndef f(:\n", str(tmp_path / "wrong.py"))) == Exit.OUR_FAULT
    assert _unexpected(compiled("1 +", "<string>")) == Exit.OUR_FAULT
    assert "our own fault" in capsys.readouterr().err


def test_one_that_is_right_could_not_be_compiled_for_want_of_memory(tmp_path, capsys):
    (tmp_path / "right.py").write_text("x = 1\n")
    (tmp_path / "wrong.py").write_text("x = 1\ndef f(:\n")
    assert _unexpected(compiled("x =", str(tmp_path / "right.py"))) == Exit.CANNOT_CREATE
    assert _unexpected(compiled("x =", str(tmp_path / "wrong.py"))) == Exit.CANNOT_CREATE
    assert "no room" in capsys.readouterr().err
