"""Fetch the corpus of this example: the test images of Pillow's own source distribution.

    python examples/thumbnails/fetch.py

pip downloads one pinned archive into `.cache/` beside this file (git ignores
it); its SHA-256 and the number of its images are compared with what was seen
when this example was written.  A corpus that is there already is verified only.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "13.0.0"
SHA256 = "cdcd1ba258178f7356d74170c9a81ba4eab6a5d55748bc402a5a2a6fe6be3510"
FILES = 931
SUFFIXES = frozenset(
    (
        ".avif", ".blp", ".bmp", ".dds", ".dib", ".fli", ".gif", ".icns", ".ico", ".j2k", ".jp2", ".jpg",
        ".pbm", ".pcx", ".pgm", ".png", ".ppm", ".psd", ".sgi", ".tga", ".tif", ".tiff", ".webp", ".xbm",
    )
)  # fmt: skip

CACHE = Path(__file__).parent / ".cache"
CORPUS = CACHE / f"pillow-{VERSION}-images"


def images(folder):
    """Return all image files below a folder, by their names; opens none."""
    return sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in SUFFIXES and not path.is_dir())


def fetch():
    """Return the folder of the corpus; fetch it if it is not there."""
    if not CORPUS.is_dir():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            archive = download(Path(folder))
            verify(archive)
            unpack(archive, Path(folder) / "images")
            os.rename(Path(folder) / "images", CORPUS)  # last: a corpus that is there is complete
    found = len(images(CORPUS))
    if found != FILES:
        raise SystemExit(f"{CORPUS}: {found} images instead of {FILES}; remove the folder and fetch it again")
    return CORPUS


def download(folder):
    """Let pip download the source archive; return its path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "pillow"]
    done = subprocess.run([*command, "--dest", str(folder), f"pillow=={VERSION}"], check=False)
    archives = list(folder.glob("*.tar.gz"))
    if done.returncode or len(archives) != 1:
        raise SystemExit("pip could not download Pillow's source; without it the example runs on hard.py's images")
    return archives[0]


def verify(archive):
    """Refuse an archive that is not the one this example was written for."""
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise SystemExit(f"{archive.name}: SHA-256 is {found}, expected {SHA256}")


def unpack(archive, folder):
    """Take the images out of the archive, and nothing else."""
    images = f"pillow-{VERSION}/Tests/images"
    with tarfile.open(archive) as tar:
        members = [member for member in tar if member.name.startswith(images + "/")]
        tar.extractall(folder.parent, members, filter="data")
    shutil.move(folder.parent / images, folder)


if __name__ == "__main__":
    print(f"{FILES} images in {fetch()}")
