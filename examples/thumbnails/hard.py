"""Thirty image files that a decoder meets one day: odd ones, broken ones, and one that never ends.

    python examples/thumbnails/hard.py [FOLDER]

Written with the standard library, so that the example runs without a network
and without trusting Pillow to make what Pillow shall read.  `EXPECTED` says
what becomes of each.
"""

import os
import shutil
import struct
import sys
import tempfile
import zlib
from pathlib import Path

FOLDER = Path(__file__).parent / ".cache" / "hard"

# What becomes of each file's job.
EXPECTED = {
    # odd, and legal
    "colours.png": "succeeded",
    "grey_16_bit.png": "succeeded",
    "palette_with_alpha.png": "succeeded",
    "one_pixel.png": "succeeded",
    "ribbon_60000_x_4.png": "succeeded",
    "hundred_megapixels.png": "succeeded",
    "rows_missing.png": "succeeded",  # Pillow leaves what is missing black
    "png_named.jpg": "succeeded",
    "gif_named.png": "succeeded",
    "animated.gif": "succeeded",
    "grey_16_bit.tif": "succeeded",
    "directory_in_a_circle.tif": "succeeded",  # the first image is whole
    "cmyk.jpg": "succeeded",
    "top_down.bmp": "succeeded",
    # broken
    "zero_bytes.png": "failed",
    "text_named.jpg": "failed",
    "header_only.png": "failed",
    "cut_in_half.png": "failed",
    "wrong_checksum.png": "failed",
    "corrupt_zlib.png": "failed",
    "no_width.png": "failed",
    "bomb_60000_x_60000.png": "failed",
    "huge_dimensions.png": "failed",
    "text_bomb.png": "failed",
    "bomb.gif": "failed",
    "data_outside.tif": "failed",
    "cut.jpg": "failed",
    "huge_dimensions.bmp": "failed",
    "symlink_to_itself.png": "failed",
    # never ends
    "named_pipe.png": "timeout",
}


def write(folder=FOLDER):
    """Make the folder with its thirty files, unless it is there; return it."""
    folder = Path(folder)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
        for name, data in images():
            (new / name).write_bytes(data)
        os.mkfifo(new / "named_pipe.png")  # who opens it waits for a writer that never comes
        os.symlink("symlink_to_itself.png", new / "symlink_to_itself.png")
        try:
            new.rename(folder)  # last: a folder that is there is complete
        except OSError:
            shutil.rmtree(new)  # another process was faster
    return folder


def images():
    """Yield (name, bytes) of each regular file."""
    colours = png(96, 64, 8, 2, bytes(v for y in range(64) for x in range(96) for v in (x * 2, y * 4, 255 - x * 2)))
    yield "colours.png", colours
    yield "grey_16_bit.png", png(64, 64, 16, 0, b"".join(struct.pack(">H", v * 16) for v in range(64 * 64)))
    yield "palette_with_alpha.png", palette_png()
    yield "one_pixel.png", png(1, 1, 8, 2, b"\xff\x80\x00")
    yield "ribbon_60000_x_4.png", png(60_000, 4, 8, 0, bytes(x >> 8 for x in range(60_000)) * 4)
    yield "hundred_megapixels.png", png(10_000, 10_000, 1, 0, (b"\xf0" * 1250 * 4 + b"\x0f" * 1250 * 4) * 1250)
    yield "rows_missing.png", png(64, 64, 8, 2, b"\x40\x90\xe0" * 64 * 20)
    yield "png_named.jpg", colours
    yield "gif_named.png", gif(32, 32, [lambda x, y: x * y // 32])
    yield "animated.gif", gif(48, 48, [lambda x, y, n=n: x + y * n for n in range(1, 6)])
    yield "grey_16_bit.tif", tiff()
    yield "directory_in_a_circle.tif", tiff(circle=True)
    yield "cmyk.jpg", cmyk_jpeg()
    yield "top_down.bmp", bmp(64, -48, bytes(v for y in range(48) for x in range(64) for v in (x * 4, y * 5, 128)))
    yield "zero_bytes.png", b""
    yield "text_named.jpg", b"This is not the picture that you are looking for.\n" * 40
    yield "header_only.png", colours[:33]
    yield "cut_in_half.png", colours[: len(colours) // 2]
    yield "wrong_checksum.png", colours[:29] + b"\0\0\0\0" + colours[33:]
    yield "corrupt_zlib.png", PNG + header(64, 64, 8, 2) + chunk(b"IDAT", b"\x78\x9c" + b"\xde\xad" * 400) + END
    yield "no_width.png", png(0, 64, 8, 2, b"")
    yield "bomb_60000_x_60000.png", png(60_000, 60_000, 1, 0, bytes(7500 * 8))
    yield "huge_dimensions.png", png((1 << 31) - 1, (1 << 31) - 1, 8, 6, bytes(64))
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(64 << 20), 9))
    yield "text_bomb.png", PNG + header(8, 8, 8, 0) + text + pixels(8, 8, 8, 0, bytes(64)) + END
    yield "bomb.gif", gif(32, 32, [lambda x, y: x], claims=(65_535, 65_535))
    yield "data_outside.tif", tiff(data_at=1 << 30)
    yield "cut.jpg", cmyk_jpeg()[:330]
    yield "huge_dimensions.bmp", bmp(1 << 30, 1 << 30, bytes(64))


# ---- PNG (https://www.w3.org/TR/png-3/)

PNG = b"\x89PNG\r\n\x1a\n"


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


END = chunk(b"IEND", b"")


def header(width, height, depth, colour):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


def pixels(width, height, depth, colour, raw):
    """Return the IDAT chunk; each row gets filter type 0.  Short `raw`: rows are missing."""
    row = max(1, (width * depth * {0: 1, 2: 3, 3: 1, 6: 4}[colour] + 7) // 8)
    rows = (b"\0" + raw[at : at + row] for at in range(0, min(len(raw), row * height), row))
    return chunk(b"IDAT", zlib.compress(b"".join(rows), 1))


def png(width, height, depth, colour, raw):
    return PNG + header(width, height, depth, colour) + pixels(width, height, depth, colour, raw) + END


def palette_png():
    palette = b"".join(bytes((i, 255 - i, 128)) for i in range(256))
    raw = bytes((x ^ y) * 4 for y in range(64) for x in range(64))
    extra = chunk(b"PLTE", palette) + chunk(b"tRNS", bytes(range(256)))
    return PNG + header(64, 64, 8, 3) + extra + pixels(64, 64, 8, 3, raw) + END


# ---- GIF: codes of nine bits, and a clear code before the table would grow


def gif(width, height, frames, claims=None):
    """Return an animation; each frame is a function (x, y) -> colour.  `claims`: size in the header and frames."""
    palette = b"".join(bytes((i, i * 3 % 256, 255 - i)) for i in range(256))
    size = struct.pack("<HH", *(claims or (width, height)))
    parts = [b"GIF89a" + size + b"\xf7\0\0" + palette]
    for frame in frames:
        values = [frame(x, y) % 256 for y in range(height) for x in range(width)]
        parts.append(b"\x21\xf9\x04\0\x0a\0\0\0" + b"\x2c\0\0\0\0" + size + b"\0\x08" + lzw(values) + b"\0")
    return b"".join(parts) + b"\x3b"


def lzw(values):
    """Return image data of nine-bit codes in blocks; it is valid LZW that compresses nothing."""
    bits = used = 0
    for number, value in enumerate(values):
        for code in (256, value) if number % 200 == 0 else (value,):
            bits |= code << used
            used += 9
    bits |= 257 << used
    data = bits.to_bytes((used + 9 + 7) // 8, "little")
    return b"".join(bytes((len(block),)) + block for block in (data[i : i + 255] for i in range(0, len(data), 255)))


# ---- TIFF, BMP, JPEG


def tiff(circle=False, data_at=None):
    """Return a grey image of 16 bits.

    Args:
        circle: its directory is its own successor.
        data_at: where it says that its data is; None: where it is.
    """
    width = height = 64
    raw = struct.pack(f"<{width * height}H", *(x * 900 for _ in range(height) for x in range(width)))
    tags = [
        (256, width), (257, height), (258, 16), (259, 1), (262, 1),
        (273, data_at or 8), (277, 1), (278, height), (279, len(raw)),
    ]  # fmt: skip
    at = 8 + len(raw)
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    directory = struct.pack("<H", len(tags)) + entries + struct.pack("<I", at * circle)
    return b"II*\0" + struct.pack("<I", at) + raw + directory


def bmp(width, height, raw):
    """Return a bitmap of 24 bits; a negative height means that the first row is the top one."""
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(raw), 2835, 2835, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(raw), 0, 0, 54) + head + raw


def cmyk_jpeg(blocks=8):
    """Return a CMYK JPEG of flat 8 x 8 blocks: only DC coefficients, so its Huffman tables fit into two lines."""

    def segment(marker, data):
        return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data

    side = blocks * 8
    components = b"".join(bytes((n, 0x11, 0)) for n in range(1, 5))
    head = (
        b"\xff\xd8"
        + segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, 0))  # four inks, as they are
        + segment(0xDB, b"\0" + b"\x01" * 64)
        + segment(0xC0, struct.pack(">BHHB", 8, side, side, 4) + components)
        + segment(0xC4, b"\x00" + bytes((0, 0, 0, 12) + (0,) * 12) + bytes(range(12)))  # DC: size n has the code n
        + segment(0xC4, b"\x10" + bytes((1,) + (0,) * 15) + b"\0")  # AC: "0" ends the block
        + segment(0xDA, b"\x04" + b"".join(bytes((n, 0)) for n in range(1, 5)) + b"\0\x3f\0")
    )
    bits, before = "", [0, 0, 0, 0]
    for block in range(blocks * blocks):
        x, y = block % blocks, block // blocks
        inks = (x * 255 // blocks, y * 255 // blocks, 255 - x * 255 // blocks, 40)
        for n, ink in enumerate(inks):
            level = (127 - ink) * 8  # Adobe stores inks inverted
            step, before[n] = level - before[n], level
            size = abs(step).bit_length()
            bits += f"{size:04b}" + (f"{step if step > 0 else step + (1 << size) - 1:0{size}b}" if size else "") + "0"
    bits += "1" * (-len(bits) % 8)
    data = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    return head + data + b"\xff\xd9"


if __name__ == "__main__":
    print(f"{len(EXPECTED)} images in {write(*sys.argv[1:])}")
