"""The thumbnails example, over the thirty files that it makes itself."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.cli.cli_support import REPOSITORY, ptss_mp

FOLDER = REPOSITORY / "examples" / "thumbnails"
JOBS = FOLDER / "jobs.py"


def part(name: str) -> ModuleType:
    """Import a module of the example from its file: its folder is on no path here."""
    spec = importlib.util.spec_from_file_location(f"thumbnails_{name}", FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fetch, hard = part("fetch"), part("hard")


def test_each_file_comes_to_what_it_should_and_the_sheet_shows_all(tmp_path: Path):
    Image = pytest.importorskip("PIL.Image", reason="needs Pillow: pip install 'ptss_mp[examples]'")
    images, sheet, report = hard.write(tmp_path / "images"), tmp_path / "made" / "sheet.png", tmp_path / "report.json"
    ended = ptss_mp(
        "run", JOBS, "--workers", "2", "--report", report, "--no-progress",
        THUMBNAILS_IMAGES=str(images), THUMBNAILS_SHEET=str(sheet), THUMBNAILS_TIMEOUT="5s",
    )  # fmt: skip
    assert ended.status == 1, ended
    jobs = {job["name"]: job for job in json.loads(report.read_text())["jobs"]}
    names = [path.name for path in fetch.images(images)]
    assert {name: jobs[f"thumbnails[{n}]"]["status"] for n, name in enumerate(names)} == hard.EXPECTED
    assert jobs["sheet"]["ok"], ended
    assert ended.out.startswith("30 images: 15 failed, 14 succeeded, 1 timeout\n")
    assert "named_pipe.png: timeout: " in ended.out
    with Image.open(sheet) as picture:
        assert f"{sheet}: {picture.width} x {picture.height} pixels, read back: 30 tiles as drawn" in ended.out
        shown = [colour for _, colour in picture.getcolors(1 << 24) or ()]
        assert (98, 118, 214) in shown, "the frame of the timeout"
        assert len(shown) > 1000, "thumbnails are colourful"


def test_without_pillow_it_says_how_to_get_it(tmp_path: Path):
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL" / "__init__.py").write_text("raise ImportError('not here')")
    hard.write(tmp_path / "images")
    ended = ptss_mp(
        "run", JOBS, THUMBNAILS_IMAGES=str(tmp_path / "images"), PYTHONPATH=f"{tmp_path}:{REPOSITORY}",
    )  # fmt: skip
    assert ended.status == 65, ended
    assert "pip install 'ptss_mp[examples]'" in ended.err
    assert len(ended.lines) == 1


def test_the_files_are_written_once(tmp_path: Path):
    folder = hard.write(tmp_path / "images")
    assert {path.name for path in folder.iterdir()} == set(hard.EXPECTED)
    (folder / "colours.png").unlink()
    assert hard.write(folder) == folder
    assert not (folder / "colours.png").exists(), "a folder that is there is taken as it is"
    assert [path.name for path in tmp_path.iterdir()] == ["images"]


def test_another_archive_is_refused(tmp_path: Path):
    archive = tmp_path / "pillow.tar.gz"
    archive.write_bytes(b"something else")
    with pytest.raises(SystemExit, match=r"SHA-256 is .*, expected "):
        fetch.verify(archive)


def test_a_corpus_with_a_file_less_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.png").touch()
    monkeypatch.setattr(fetch, "CORPUS", tmp_path)
    with pytest.raises(SystemExit, match="1 images instead of 931"):
        fetch.fetch()


def test_no_network_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fetch, "CACHE", tmp_path)
    monkeypatch.setattr(fetch, "CORPUS", tmp_path / "images")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")  # nobody listens there
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(SystemExit, match=r"hard\.py"):
        fetch.fetch()
    assert list(tmp_path.iterdir()) == []
