"""Twelve PDFs for a machine without network: eight with text, four that are broken each in its own way."""

import os
from pathlib import Path

WORDS = ("release", "deadline", "slack", "tardiness", "attempt", "worker", "warden", "outcome")


def write(folder):
    """Write both halves of the corpus below a folder, once; return the folder."""
    for half in ("pypdf", "pikepdf"):
        if (Path(folder) / half).is_dir():
            continue
        fresh = Path(folder) / f".{half}.{os.getpid()}"
        fresh.mkdir(parents=True)
        for number, word in enumerate(WORDS[::2] if half == "pypdf" else WORDS[1::2]):
            (fresh / f"{word}.pdf").write_bytes(pdf([f"{word} {word} page {page}" for page in range(number + 1)]))
        if half == "pikepdf":
            (fresh / "empty.pdf").write_bytes(b"")
            (fresh / "no_pdf.pdf").write_bytes(b"\x89PNG\r\n" * 100)
            (fresh / "cut.pdf").write_bytes(pdf(["half of it"])[:200])
            round_and_round = pdf(["x"]).replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]")  # pages that are their own parent
            (fresh / "loop.pdf").write_bytes(round_and_round)
        os.rename(fresh, Path(folder) / half)
    return Path(folder)


def pdf(pages):
    """Return a PDF with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        drawn = f"BT /F1 24 Tf 72 700 Td ({text}) Tj ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * n} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    return data + f"{head}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n".encode()
