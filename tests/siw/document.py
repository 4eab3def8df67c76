"""Sections of docs/interop.md: who writes one keeps the others."""

import re
import textwrap

WIDTH = 120


def wrapped(text):
    """The text with its paragraphs and items wrapped to the width of documents; tables and headings stay as they are."""
    return re.sub(r"^(?![|#\s])\S.*(?:\n(?![|#\s-])\S.*|\n  \S.*)*", wrapped_paragraph, text, flags=re.MULTILINE)


def wrapped_paragraph(found):
    indent = "  " if found[0].startswith("- ") else ""
    return textwrap.fill(" ".join(found[0].split()), WIDTH, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


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
