"""Random trees and V4A patches, most of them fitting, some of them damaged, for comparing two engines."""

import random
from dataclasses import dataclass

WORDS = ("alpha", "beta", "gamma", "delta", "return x", "def f():", "class A:", "}", "", "", "    pass", "\tx = 1")
NAMES = ("a.txt", "b.txt", "src/c.py", "src/deep/d.py", "e")
JUNK = ("bad", "", "  ", "*** End of File", "*** Update File: a.txt", "@@", "@@ alpha", "*** End Patch", "+", "-", " x")


@dataclass(frozen=True, slots=True)
class Case:
    """A tree (path -> content) and a patch text to apply to it."""

    tree: dict[str, bytes]
    patch: str


def generate(seed: int, count: int) -> list[Case]:
    """The same cases for the same seed."""
    dice = random.Random(seed)
    return [_case(dice) for _ in range(count)]


def _case(dice: random.Random) -> Case:
    tree = {name: _content(dice) for name in dice.sample(NAMES, dice.randint(1, 3))}
    lines = ["*** Begin Patch"]
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        lines += _hunk(dice, tree)
    lines.append("*** End Patch")
    if dice.random() < 0.3:
        _damage(dice, lines)
    text = "\n".join(lines)
    if dice.random() < 0.1:
        text = _wrap(dice, text)
    if dice.random() < 0.1:
        text = text.replace("\n", "\r\n")
    return Case(tree, text)


def _content(dice: random.Random) -> bytes:
    lines = [_line(dice) for _ in range(dice.choice((0, 1, 3, 8, 20)))]
    end = dice.choice(("\n", "\n", "\n", "\n", "\r\n"))
    text = "".join(line + (dice.choice(("\n", "\r\n")) if dice.random() < 0.03 else end) for line in lines)
    if dice.random() < 0.15:
        text = text.removesuffix("\n").removesuffix("\r")
    data = text.encode()
    if dice.random() < 0.03:
        data = b"\xef\xbb\xbf" + data
    if dice.random() < 0.03:
        data += b"\xff\n"
    return data


def _line(dice: random.Random) -> str:
    word = dice.choice(WORDS)
    if dice.random() < 0.5 and word:
        word += f" {dice.randint(1, 30)}"
    if dice.random() < 0.05:
        word += dice.choice(("  ", "\t", " – x", " “q”", "\u00a0y", " é"))
    return word


def _hunk(dice: random.Random, tree: dict[str, bytes]) -> list[str]:
    name = dice.choice((*tree, dice.choice(NAMES)) if dice.random() < 0.1 else tuple(tree))
    roll = dice.random()
    if roll < 0.15:
        path = dice.choice((f"new{dice.randint(1, 9)}.txt", f"x/y/{dice.randint(1, 9)}", name))
        return [f"*** Add File: {path}", *("+" + _line(dice) for _ in range(dice.choice((0, 1, 2, 5))))]
    if roll < 0.25:
        return [f"*** Delete File: {name}"]
    lines = [f"*** Update File: {name}"]
    if dice.random() < 0.12:
        lines.append(f"*** Move to: {dice.choice(('moved.txt', 'x/moved', name, dice.choice(NAMES)))}")
    return lines + _chunks(dice, tree.get(name, b"").decode("utf-8", "replace").removeprefix("\ufeff").splitlines())


def _chunks(dice: random.Random, file: list[str]) -> list[str]:
    out: list[str] = []
    at = 0
    for number in range(dice.choice((1, 1, 2, 3))):
        if at > len(file):
            break
        start = dice.randint(at, len(file))
        end = min(start + dice.choice((0, 1, 2, 4)), len(file))
        anchor = dice.choice(file[at:start]) if start > at and dice.random() < 0.25 else ""
        if anchor or number or dice.random() < 0.9:
            out.append(f"@@ {anchor}".rstrip() if anchor.strip() else "@@")
        out += _signed(dice, file[start:end])
        if dice.random() < (0.7 if end == len(file) else 0.03):
            out.append("*** End of File")
        elif dice.random() < 0.08:
            out.append("")
        at = end
    return out


def _signed(dice: random.Random, run: list[str]) -> list[str]:
    lines: list[str] = []
    for line in run:
        text = _misremembered(dice, line) if dice.random() < 0.06 else line
        sign = dice.choice("  -")
        lines.append(sign + text if sign != " " or text or dice.random() < 0.5 else "")
        if dice.random() < 0.3:
            lines.append("+" + _line(dice))
    if not any(line.startswith(("+", "-")) for line in lines) and dice.random() < 0.9:
        lines.append("+" + _line(dice))
    return lines


def _misremembered(dice: random.Random, line: str) -> str:
    return dice.choice((line + "  ", "  " + line, line.strip(), line.replace("–", "-"), line + "x", "other"))


def _damage(dice: random.Random, lines: list[str]) -> None:
    for _ in range(dice.choice((1, 1, 2))):
        at = dice.randrange(len(lines)) if lines else 0
        match dice.randrange(6):
            case 0 if lines:
                del lines[at]
            case 1:
                lines.insert(at, dice.choice(JUNK))
            case 2 if lines:
                lines[at] = dice.choice((" ", "  ", "\t")) + lines[at]
            case 3 if lines:
                lines[at] += dice.choice((" ", "\t", " ***"))
            case 4 if lines:
                del lines[at:]
            case _ if lines:
                lines.insert(at, lines[at])


def _wrap(dice: random.Random, text: str) -> str:
    opening = dice.choice(("<<EOF", "<<'EOF'", '<<"EOF"', "<<'EOF\"", "<<PATCH", "\n\n", "  "))
    return f"{opening}\n{text}\nEOF\n" if opening.startswith("<<") else opening + text + dice.choice(("", "\n\n", "  "))
