"""Sections of docs/interop.md: who writes one keeps the others."""

import re
import textwrap

WIDTH = 120


def wrapped(text):
    """The text with its paragraphs and items wrapped to the width of documents; tables and headings stay."""
    return "\n\n".join(wrapped_block(block) for block in text.split("\n\n"))


def wrapped_block(block):
    """What stands between two empty lines: a table, a heading, a paragraph or a list."""
    if block.startswith(("|", "#")):
        return block
    parts = re.split(r"\n(?=- )", block)
    return "\n".join(textwrap.fill(" ".join(part.split()), WIDTH, subsequent_indent="  " * part.startswith("- "),
                                   break_long_words=False, break_on_hyphens=False) for part in parts)


def find(text, heading):
    """Where a section is, with its heading."""
    return re.search(rf"^{re.escape(heading)}\n.*?(?=^## |^What does not work|\Z)", text, flags=re.MULTILINE | re.DOTALL)


def section(docs, heading):
    """A section as it stands; empty when there is none."""
    found = docs.exists() and find(docs.read_text(encoding="utf-8"), heading)
    return found[0].strip() if found else ""


def put(docs, section):
    """Puts a section, which begins with its heading, where that is, or else behind the other sections."""
    text = docs.read_text(encoding="utf-8")
    heading = section.partition("\n")[0]
    if found := find(text, heading):
        before, behind = text[:found.start()], text[found.end():]
    else:
        at = text.find("What does not work")
        before, behind = (text[:at], text[at:]) if at >= 0 else (text, "")
    parts = [part.strip() for part in (before, section, behind)]
    docs.write_text(wrapped("\n\n".join(part for part in parts if part) + "\n"), encoding="utf-8")
