"""The PDFs example, over the twelve that it makes itself: read once, whatever comes in between."""

from __future__ import annotations

import importlib.util
import json
import signal
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.cli.cli_support import CAP_S, REPOSITORY, ptss_mp, start

FOLDER = REPOSITORY / "examples" / "pdf_text"
JOBS = FOLDER / "jobs.py"


def part(name: str) -> ModuleType:
    """Import a module of the example from its file: its folder is on no path here."""
    spec = importlib.util.spec_from_file_location(f"pdf_text_{name}", FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fetch, made = part("fetch"), part("made")
INDEX = (
    "pypdf: 10 pages, 30 words, 5 different; 0 files unread\n"
    "pikepdf: 10 pages, 30 words, 5 different; 4 files unread\n"
)


@pytest.fixture
def corpus(tmp_path: Path) -> dict[str, str]:
    pytest.importorskip("pypdfium2", reason="needs pypdfium2: pip install 'ptss_mp[examples]'")
    folder = made.write(tmp_path / "pdfs")
    return {"PDF_TEXT_FOLDER": str(folder), "PDF_TEXT_TIMEOUT": "2s", "PDF_TEXT_LOG": str(tmp_path / "log")}


def test_each_collection_and_both(corpus: dict[str, str], tmp_path: Path):
    report = tmp_path / "report.json"
    ended = ptss_mp("run", JOBS, "--workers", "2", "--no-progress", "--report", report, **corpus)
    assert ended.status == 1, ended
    assert ended.out.startswith(INDEX), ended.out
    ends = {job["name"]: job["status"] for job in json.loads(report.read_text())["jobs"]}
    halves = {name: fetch.pdfs(Path(corpus["PDF_TEXT_FOLDER"]) / name) for name in ("pypdf", "pikepdf")}
    bad = {path.name: ends[f"{half}[{n}]"] for half, paths in halves.items() for n, path in enumerate(paths)}
    bad = {name: status for name, status in bad.items() if status != "succeeded"}
    assert bad == {"empty.pdf": "failed", "no_pdf.pdf": "failed", "cut.pdf": "failed", "loop.pdf": "failed"}


def test_killed_in_the_middle_it_reads_only_the_rest(corpus: dict[str, str], tmp_path: Path):
    journal, log = tmp_path / "pdf.db", Path(corpus["PDF_TEXT_LOG"])
    command = ("run", JOBS, "--workers", "1", "--no-progress", "--journal", journal, "--resume")
    with start(*command, **corpus) as program:
        until = time.monotonic() + CAP_S
        while not log.exists() or len(log.read_text().splitlines()) < 5:
            assert time.monotonic() < until, "five PDFs are not read"
            time.sleep(0.005)
        program.send_signal(signal.SIGKILL)
        program.wait(CAP_S)
    ended = ptss_mp(*command, **corpus)
    assert ended.status == 1, ended
    read = log.read_text().splitlines()
    twice = {path for path in read if read.count(path) > 1}
    assert len(set(read)) >= 11, "what was sent at the kill counts as started, though it may not have begun to read"
    assert len(twice) <= 1, "what ran at the kill alone may be interrupted; nothing that was finished is read again"
    again = ptss_mp(*command, **corpus)
    assert again.status == 1, again
    assert log.read_text().splitlines() == read, "nothing is left to be read"


def test_another_archive_is_refused(tmp_path: Path):
    archive = tmp_path / "x.tar.gz"
    archive.write_bytes(b"something else")
    with pytest.raises(SystemExit, match=r"SHA-256 is .*, expected "):
        fetch.verify(archive, fetch.ARCHIVES[0].sha256)
