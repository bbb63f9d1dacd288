"""Letters that look like others, shown as escapes where somebody decides by what a text looks like."""

import re
import unicodedata

from ferrule.execpolicy import visible

LOOKS_LATIN = frozenset(
    "АВСЕНІЈКМОРЅТХҮԀԚԜаԁеһіјӏорԛсѕυѵѡхуүѐёїӑӓЀЁЇӐӒӔӕ"  # Cyrillic
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳοαγικνρτυχωηϹ"  # Greek
    "ՕՍԼՏհոսօցզաԱ"  # Armenian
    "ᎠᎡᎢᎪᎫᎬᎳᎷᎻᏀᏃᏆᏞᏟᏢᏦᏚᏔᏴᏙᏒᏋ"  # Cherokee
    "ıȷɑɡɩʋɪǀǃ"  # other letters of Latin shape
)
"""Letters that are drawn like one of ASCII; after the Unicode confusables (UTS 39)."""
LOOKS_LIKE_SIGNS = frozenset("‐‑‒–—―−﹣∕⁄⧸╱∖⧵⟍‚․‥…ꓸ׃∶ː‹›«»“”‘’‛′″ʹʺˈ᾽´ˊˋ｀⎮∣⼁ꓽ；;·‧∙⋅⁃")
"""Signs that are drawn like one that a shell reads."""
_WORD = re.compile(r"[^\W\d_]+")
MARKS = re.compile(r"(?<=[^\w])[\u0300-\u036f]+|[\u0300-\u036f]{3,}|[\u20d0-\u20ff\u0488\u0489]+")
"""Marks over a sign, around a letter, or many of them: they would cover what stands there or in the next row."""


def unmistakable(text: str, *, multiline: bool = True) -> str:
    """Return a text of others as it is shown before a decision: control, bidi, blank and look-alike characters as
    escapes. A word in another script stays, unless all its letters could be Latin, or some are."""
    text = visible(text, multiline=multiline)
    if text.isascii():
        return text
    text = _WORD.sub(lambda word: _escaped_word(word[0]), text)
    text = MARKS.sub(lambda marks: "".join(map(_escape, marks[0])), text)
    return "".join(_escape(char) if char in LOOKS_LIKE_SIGNS or _is_form_of_ascii(char) else char for char in text)


def _escaped_word(word: str) -> str:
    foreign = [char for char in word if char in LOOKS_LATIN]
    if not foreign:
        return word
    others = [char for char in word if char not in LOOKS_LATIN]
    mixed = any("a" <= char.lower() <= "z" for char in others)
    if others and not mixed:
        return word
    return "".join(_escape(char) if char in LOOKS_LATIN else char for char in word)


def _is_form_of_ascii(char: str) -> bool:
    """Return whether it is another form of ASCII: full width, mathematical, in a circle."""
    return not char.isascii() and (plain := unicodedata.normalize("NFKC", char)).isascii() and bool(plain.strip())


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()
