"""A thumbnail of every image in a folder, one job each, and a contact sheet of them all.

    pip install 'ptss_mp[examples]'
    python examples/thumbnails/fetch.py      # 931 test images of Pillow's own; without it: the thirty of hard.py
    ptss-mp run examples/thumbnails/jobs.py

A file that cannot be read, eats memory, hangs or crashes the decoder costs one
tile.  `sheet` waits for all (`run_if="done"`), draws what came of each, reads
the PNG back, compares every tile, and prints only then.  Some of the files are
broken on purpose, so the run ends with exit status 1.

In the environment: THUMBNAILS_IMAGES, a folder of images; THUMBNAILS_SHEET,
where the sheet goes; THUMBNAILS_TIMEOUT, of one image ("10s").
"""

import io
import math
import os
import resource
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import fetch
import hard

from ptss_mp import task

try:
    from PIL import Image, ImageDraw, ImageFont, ImageOps
except ImportError:
    raise ImportError("this example needs Pillow: pip install 'ptss_mp[examples]'") from None

FOLDER = Path(os.environ.get("THUMBNAILS_IMAGES") or (fetch.CORPUS if fetch.CORPUS.is_dir() else hard.write()))
SHEET = Path(os.environ.get("THUMBNAILS_SHEET") or fetch.CACHE / "contact_sheet.png")
TIMEOUT = os.environ.get("THUMBNAILS_TIMEOUT", "10s")
FILES = fetch.images(FOLDER)

SIDE = 96  # pixels of a thumbnail's longer side
MEMORY_MAX = 1 << 30  # private memory of a worker while it decodes; beyond it the job gets a MemoryError


# ---- One image, one job.


def thumbnail(path):
    """Return an image as a small PNG."""
    with at_most(MEMORY_MAX), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of large images; the limits here are the memory and the time
        with Image.open(path) as image:
            if image.mode.startswith("I"):
                image = image.convert("I")  # of its many kinds (I;16B, ...) this one can be resized
            image.thumbnail((SIDE, SIDE))
            image.load()  # what is small already was not touched
            small = plain(ImageOps.exif_transpose(image))
    png = io.BytesIO()
    small.save(png, "PNG")
    return png.getvalue()


@contextmanager
def at_most(size):
    """Let this process have no more private memory than so many bytes for a while."""
    soft, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (size, hard_limit))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard_limit))


def plain(image):
    """Return an image of any mode in RGBA; numbers beyond a byte are stretched from black to white."""
    if image.mode in ("I", "F"):
        image = image.convert("F")
        low, high = image.getextrema()
        scale = 255 / (high - low) if high > low else 1
        image = image.point(lambda value: value * scale - low * scale).convert("L")
    return image.convert("RGBA")


thumbnails = task(timeout=TIMEOUT).map(thumbnail, map(str, FILES))


# ---- The contact sheet.

GAP, TITLE, CAPTION = 10, 44, 15  # pixels
TINY = 16  # pixels; what is not larger is drawn larger, or nobody would see it
PAPER, CELL, TEXT, FAINT = (24, 26, 30), (40, 43, 49), (226, 228, 232), (150, 155, 163)
COLOURS = {"succeeded": (88, 166, 92), "failed": (196, 132, 52), "timeout": (98, 118, 214)}
OTHER = (200, 66, 66)  # crashed and the like


@task(run_if="done", timeout="5m")
def sheet(thumbnails):
    """Draw all outcomes; print what they came to once the picture on disk is known to show it."""
    counts = Counter(outcome.status.value for outcome in thumbnails)
    tiles = [tile(path, outcome) for path, outcome in zip(FILES, thumbnails, strict=True)]
    columns, picture = lay_out(tiles, counts)
    SHEET.parent.mkdir(parents=True, exist_ok=True)
    picture.save(SHEET)
    with Image.open(SHEET) as written:
        for number, drawn in enumerate(tiles):
            at = place(number, columns)
            box = (*at, at[0] + drawn.width, at[1] + drawn.height)
            assert written.crop(box).tobytes() == drawn.tobytes(), f"tile {number} is not what was drawn"
    print(f"{len(FILES)} images: " + ", ".join(f"{number} {status}" for status, number in counts.most_common()))
    for cause, number in Counter(map(cause_of, (o for o in thumbnails if not o.ok))).most_common():
        print(f"{number:>5} {cause}")
    for path, outcome in zip(FILES, thumbnails, strict=True):
        if outcome.status not in ("succeeded", "failed"):
            print(f"{path.name}: {outcome.status}: {outcome.error}")
    print(f"{SHEET}: {picture.width} x {picture.height} pixels, read back: {len(tiles)} tiles as drawn")


def cause_of(outcome):
    """Return why a job failed, in a few words: the class of its exception, or its status."""
    if outcome.status == "failed":
        return outcome.error.partition(":")[0]
    return outcome.status.value + (f" ({outcome.signal.name})" if outcome.signal else "")


def tile(path, outcome):
    """Return the picture of one outcome: the thumbnail or the cause, and the file's name below."""
    drawn = Image.new("RGB", (SIDE, SIDE + CAPTION), PAPER)
    draw = ImageDraw.Draw(drawn)
    if outcome.ok:
        small = Image.open(io.BytesIO(outcome.result()))
        draw.rectangle((0, 0, SIDE - 1, SIDE - 1), fill=CELL)
        if max(small.size) <= TINY:
            small = small.resize([n * (2 * TINY // max(small.size)) for n in small.size], Image.Resampling.NEAREST)
        at = (SIDE - small.width) // 2, (SIDE - small.height) // 2
        drawn.paste(chequered(small.size), at)
        drawn.paste(small, at, small)
    else:
        colour = COLOURS.get(outcome.status, OTHER)
        draw.rectangle((0, 0, SIDE - 1, SIDE - 1), fill=mixed(colour, PAPER), outline=colour)
        words = wrapped(cause_of(outcome), FONT, SIDE - 12)
        draw.multiline_text((SIDE // 2, SIDE // 2), words, TEXT, FONT, "mm", spacing=2, align="center")
    draw.text((SIDE // 2, SIDE + 3), shortened(path.name, SMALL, SIDE), FAINT, SMALL, "ma")
    return drawn


def lay_out(tiles, counts):
    """Return the number of columns, and the sheet with its title."""
    columns = max(6, math.ceil(math.sqrt(len(tiles) * 1.5)))
    width, height = place(columns * math.ceil(len(tiles) / columns) - 1, columns)
    picture = Image.new("RGB", (width + SIDE + GAP, height + SIDE + CAPTION + GAP), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((GAP, GAP), f"{len(tiles)} images", TEXT, BIG)
    x = GAP + draw.textlength(f"{len(tiles)} images", BIG) + 2 * GAP
    for status, number in counts.most_common():
        draw.rectangle((x, GAP + 7, x + 10, GAP + 17), fill=COLOURS.get(status, OTHER))
        draw.text((x + 16, GAP + 4), f"{number} {status}", TEXT, FONT)
        x += 16 + draw.textlength(f"{number} {status}", FONT) + 2 * GAP
    for number, drawn in enumerate(tiles):
        picture.paste(drawn, place(number, columns))
    return columns, picture


def place(number, columns):
    """Return where a tile's upper left corner is."""
    row, column = divmod(number, columns)
    return GAP + column * (SIDE + GAP), TITLE + row * (SIDE + CAPTION + GAP)


def chequered(size):
    """Return the usual pattern behind what is transparent."""
    pattern = Image.new("L", (2, 2))
    pattern.putdata((150, 110, 110, 150))
    big = pattern.resize((16, 16), Image.Resampling.NEAREST)
    ground = Image.new("RGB", size)
    for x in range(0, size[0], 16):
        for y in range(0, size[1], 16):
            ground.paste(big, (x, y))
    return ground


def mixed(one, other):
    return tuple((a + 2 * b) // 3 for a, b in zip(one, other, strict=True))


def wrapped(text, font, width):
    """Return a text in lines that fit, broken before capitals: UnidentifiedImageError."""
    lines = [""]
    for word in "".join(f" {c}" if c.isupper() else c for c in text.replace(" (", " ")).rstrip(")").split(" "):
        joined = lines[-1] + word
        if font.getlength(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(word)
    return "\n".join(line for line in lines if line)


def shortened(text, font, width):
    """Return a text that fits; its middle goes first."""
    keep = len(text)
    while font.getlength(text) > width:
        keep -= 1
        text = text[: keep // 2] + "…" + text[-(keep - keep // 2) :]
    return text


SMALL, FONT, BIG = (ImageFont.load_default(size) for size in (10, 12, 20))
