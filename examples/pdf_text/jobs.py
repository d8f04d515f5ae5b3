"""The words of every PDF of two collections: a job for each file, one for each collection, one for both.

    pip install 'ptss_mp[examples]'
    python examples/pdf_text/fetch.py        # 134 test PDFs of pypdf and pikepdf; without it: the twelve of made.py
    ptss-mp run examples/pdf_text/jobs.py --journal pdf.db --resume

Stop it at any moment (Ctrl-C, kill -9, a power cut) and give the last line
again: what was finished is not done again, and the index is of all files.
pypdfium2 is C++ underneath: a PDF that crashes it, hangs it or eats the memory
costs that PDF.  Some are broken on purpose, so the run ends with status 1;
`ptss-mp failures pdf.db` says which, and why.

In the environment: PDF_TEXT_FOLDER, where the PDFs are; PDF_TEXT_TIMEOUT, of one
file ("20s"); PDF_TEXT_LOG, a file that gets a line for each PDF that is really read.
"""

import os
import re
from collections import Counter
from pathlib import Path

import fetch
import made

from ptss_mp import task

try:
    import pypdfium2
except ImportError:
    raise ImportError("this example needs pypdfium2: pip install 'ptss_mp[examples]'") from None

FOLDER = Path(os.environ.get("PDF_TEXT_FOLDER") or (fetch.CACHE if fetch.CACHE.is_dir() else made.write(fetch.CACHE)))
TIMEOUT = os.environ.get("PDF_TEXT_TIMEOUT", "20s")
LOG = os.environ.get("PDF_TEXT_LOG")


# ---- One PDF, one job.


def text(path):
    """Return the pages of a PDF as text."""
    if LOG:
        with open(LOG, "a") as log:
            log.write(path + "\n")
    document = pypdfium2.PdfDocument(path)
    try:
        return [page.get_textpage().get_text_range() for page in document]
    finally:
        document.close()


each = task(timeout=TIMEOUT, memory="1GiB", key=str)
pypdf = each.map(text, map(str, fetch.pdfs(FOLDER / "pypdf")))
pikepdf = each.map(text, map(str, fetch.pdfs(FOLDER / "pikepdf")))


# ---- One collection, one job: it waits for all of its files, however they end.


def words(outcomes):
    """Return (pages, how often each word occurs, files without text) of one collection."""
    read = [outcome.result() for outcome in outcomes if outcome.ok]
    count = Counter(word.lower() for pages in read for page in pages for word in re.findall(r"[^\W\d_]{4,}", page))
    return sum(map(len, read)), count, len(outcomes) - len(read)


@task(run_if="done", timeout="5m")
def words_pypdf(pypdf):
    return words(pypdf)


@task(run_if="done", timeout="5m")
def words_pikepdf(pikepdf):
    return words(pikepdf)


# ---- Both.


@task(timeout="5m")
def index(words_pypdf, words_pikepdf):
    """Print what was found."""
    for name, (pages, count, without) in (("pypdf", words_pypdf), ("pikepdf", words_pikepdf)):
        print(f"{name}: {pages} pages, {sum(count.values())} words, {len(count)} different; {without} files unread")
    both = words_pypdf[1] + words_pikepdf[1]
    print("most frequent: " + ", ".join(f"{word} {number}" for word, number in both.most_common(8)))
