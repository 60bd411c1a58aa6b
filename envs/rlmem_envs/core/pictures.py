"""Text as an image, for tasks that do not draw themselves."""

import numpy as np
from numpy.typing import NDArray


def text_picture(text: str, size: int = 32) -> NDArray[np.uint8]:
    """Light letters on dark ground [height, width, 3], `size` pixels high. Needs Pillow."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size)
    lines = text.splitlines() or [""]
    cell_width, cell_height = size * 2 // 3, size * 5 // 4
    image = Image.new("RGB", (max(map(len, lines)) * cell_width + size, len(lines) * cell_height + size), (24, 26, 32))
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        for column, letter in enumerate(line):  # one by one, so that the columns of a board stay columns
            at = (size // 2 + (column + 0.5) * cell_width, size // 2 + row * cell_height)
            draw.text(at, letter, (230, 230, 225), font, anchor="ma")  # in the middle of its column
    return np.asarray(image)
