"""Draws demo.svg: a terminal, from what `script` recorded of it.

    script -qec "sandglass run …" one.txt
    python3 docs/demo.py docs/demo.svg "sandglass run …" one.txt ["another command" two.txt …]
"""

import html
import re
import sys

INK, DIM, STRONG, PROMPT = "#c9d1d9", "#7d8590", "#f0f6fc", "#58a6ff"
COLOURS = {31: "#f85149", 32: "#3fb950", 33: "#d29922"}
SIZE, LINE, LEFT, TOP = 13, 18, 18, 50
WIDTH = SIZE * 0.602  # of one character


def recorded(path):
    """The lines of a recording, without those that `script` adds."""
    with open(path, encoding="utf-8", newline="") as f:
        lines = f.read().replace("\r\n", "\n").split("\n")
    return "\n".join(line for line in lines if not line.startswith(("Script started", "Script done"))).strip("\n").split("\n")


def spans(line):
    """A line as (text, colour, bold), by its colour sequences."""
    colour, bold, found = INK, False, []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b"):
            found.append((part, colour, bold))
            continue
        for code in (int(code or 0) for code in part[2:-1].split(";")):
            if code == 0:
                colour, bold = INK, False
            elif code == 1:
                colour, bold = (STRONG if colour == INK else colour), True
            elif code == 2:
                colour = DIM
            else:
                colour = COLOURS.get(code, colour)
    return [span for span in found if span[0]]


def draw(screen):
    width = round(max(sum(len(text) for text, _, _ in line) for line in screen) * WIDTH) + 2 * LEFT
    height = TOP + LINE * len(screen)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    yield f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="#0d1117" stroke="#30363d"/>'
    for i, colour in enumerate(COLOURS[code] for code in (31, 33, 32)):
        yield f'<circle cx="{LEFT + 5 + 18 * i}" cy="18" r="5.5" fill="{colour}"/>'
    yield f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE}">'
    for row, line in enumerate(screen):
        column = 0
        for text, colour, bold in line:
            shown = text.strip(" ")
            if shown:
                x = LEFT + (column + len(text) - len(text.lstrip(" "))) * WIDTH
                weight = ' font-weight="bold"' if bold else ""
                yield (
                    f'<text x="{x:.1f}" y="{TOP + LINE * row}" fill="{colour}"{weight} xml:space="preserve"'
                    f' textLength="{len(shown) * WIDTH:.1f}">{html.escape(shown)}</text>'
                )
            column += len(text)
    yield "</g>"
    yield "</svg>"


def main(target, *pairs):
    screen = []
    for command, path in zip(pairs[::2], pairs[1::2], strict=True):
        screen += [[]] if screen else []
        screen.append([("$ ", PROMPT, True), (command, STRONG, False)])
        screen += [spans(line) for line in recorded(path)]
    with open(target, "w", encoding="utf-8") as f:
        f.write("\n".join(draw(screen)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
