"""Draw the pictures of README.md from what commands print on a terminal.

    python docs/images/record.py           # all of them; the run takes minutes
    python docs/images/record.py verdict   # one of them

A command runs in a terminal of its own. pyte (pip install pyte) interprets what the terminal is sent, and screens are
kept as they change. A picture shows some of them one after the other, and the last one alone where motion is not
wanted.
"""

import fcntl
import os
import pty
import struct
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyte


class Picture(NamedTuple):
    """A command, the size of its terminal, and how many screens are shown."""

    command: str
    columns: int
    rows: int
    screens: int


PICTURES = {
    "run": Picture("rlmem train memory=ffm algo=ppo env=repeat_previous", 118, 24, 16),
    "verdict": Picture("rlmem reproduce lprnn/figure4 --show", 146, 90, 1),
}
EACH, LAST = 0.9, 5.0
"""Seconds for which a screen is shown, and the last one."""
WIDE, HIGH, SIZE, EDGE = 7.8, 18, 13, 16
"""Pixels: a character and a line, the size of the font, the margin."""
INK, PAPER = "#e6edf3", "#0d1117"
COLOURS = {"red": "#ff7b72", "green": "#3fb950", "brown": "#d29922", "blue": "#58a6ff", "cyan": "#39c5cf"}
Run = tuple[int, str, str]
"""Characters of one colour: their column, text and colour."""
Screen = list[list[Run]]


def written(command: str, columns: int, rows: int) -> Iterator[bytes]:
    """What the command sends to its terminal."""
    child, terminal = pty.fork()
    if child == 0:
        time.sleep(0.2)  # until the terminal has its size
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.execvp("sh", ["sh", "-c", command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    while True:
        try:
            yield os.read(terminal, 65536)
        except OSError:  # the command has ended
            break
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(f"{command}: exit code {code}")


def screens(command: str, columns: int, rows: int, parts: Iterator[bytes]) -> list[Screen]:
    """The screens that differ, first the one with nothing but the command."""
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    stream.feed(f"$ {command}\r\n".encode())
    found = [shown(screen)]
    for part in parts:
        stream.feed(part)
        if (now := shown(screen)) != found[-1]:
            found.append(now)
    return found


def shown(screen: pyte.Screen) -> Screen:
    lines: Screen = []
    for y in range(screen.lines):
        cells = [(x, screen.buffer[y][x]) for x in range(screen.columns)]
        runs = [list(run) for _, run in groupby(cells, lambda cell: cell[1].fg)]
        texts = [(run[0][0], "".join(cell.data for _, cell in run), colour(run[0][1].fg)) for run in runs]
        lines.append([(x, text.rstrip(), ink) for x, text, ink in texts if text.strip()])
    while lines and not lines[-1]:
        lines.pop()
    return lines


def colour(name: str) -> str:
    return INK if name == "default" else COLOURS.get(name, f"#{name}")


def chosen(found: Sequence[Screen], count: int) -> list[Screen]:
    """`count` of the screens, evenly, the last one included."""
    return [found[round((k + 1) * (len(found) - 1) / count)] for k in range(count)]


def picture(frames: Sequence[Screen], columns: int, title: str) -> str:
    """The frames as one SVG."""
    width, height = round(columns * WIDE + 2 * EDGE), HIGH * max(map(len, frames)) + 2 * EDGE
    total = EACH * (len(frames) - 1) + LAST
    style = [f"text {{ font: {SIZE}px ui-monospace, Menlo, Consolas, monospace; fill: {INK}; white-space: pre }}"]
    if len(frames) > 1:
        style += [
            "g { visibility: hidden } g:last-child { visibility: visible }",
            "@media (prefers-reduced-motion: no-preference) {",
            f"g {{ animation: each {total:.1f}s step-end infinite }} g:last-child {{ animation-name: last }} }}",
            f"@keyframes each {{ 0% {{ visibility: visible }} {100 * EACH / total:.2f}% {{ visibility: hidden }} }}",
            f"@keyframes last {{ 0% {{ visibility: visible }} {100 * LAST / total:.2f}% {{ visibility: hidden }} }}",
        ]
    drawn = []
    for k, frame in enumerate(frames):
        drawn.append(f'<g style="animation-delay: {k * EACH - total:.1f}s">' if len(frames) > 1 else "<g>")
        for y, line in enumerate(frame):
            for x, text, ink in line:
                place = f'x="{EDGE + x * WIDE:.1f}" y="{EDGE + SIZE + y * HIGH}" textLength="{len(text) * WIDE:.1f}"'
                fill = "" if ink == INK else f' style="fill: {ink}"'
                drawn.append(f"<text {place}{fill}>{escape(text)}</text>")
        drawn.append("</g>")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
    head += f' aria-label="{escape(title)}">'
    paper = f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>'
    return "\n".join([head, "<style>", *style, "</style>", paper, *drawn, "</svg>", ""])


def draw(name: str, parts: Iterator[bytes] | None = None) -> None:
    """Write a picture.

    parts: what the terminal was sent; None: run the command
    """
    command, columns, rows, count = PICTURES[name]
    found = screens(command, columns, rows, parts or written(command, columns, rows))
    path = Path(__file__).parent / f"{name}.svg"
    path.write_text(picture(chosen(found, count), columns, f"$ {command}"), encoding="utf-8")
    print(f"wrote {path}: {count} of {len(found)} screens")


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        draw(name)
