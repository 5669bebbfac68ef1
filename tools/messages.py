"""The console's texts and their translations: `messages.py` brings the Chinese file up to date, `--check` refuses gaps.

A text is what stands in `_()`, `words()`, `ngettext()`, `phrase()`, `phrase_n()` and `{% trans %}` below
`cloud_sync/edgegpu_cloud`, and in `sentence()` and `box_sentence()` in the core and the protocol. English is the text
itself. `--check` fails where a text has no translation, where the file has texts that nothing uses, and where
placeholders differ.
"""

import argparse
import io
import re
import sys
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "cloud_sync/edgegpu_cloud"
SENTENCES = [ROOT / "plugin/edgegpu_core", ROOT / "cloud_sync/edgegpu_sync"]
TRANSLATIONS = SOURCES / "console/locale"
METHODS = [("**/templates/**.html", "jinja2"), ("**.py", "python")]
OPTIONS = {"**/templates/**.html": {"trimmed": "true", "silent": "false"}}
_SENTENCES = {"sentence": None, "box_sentence": None}
_PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]|%[a-z]")


def extracted() -> Catalog:
    """Return a catalog with every text of the sources."""
    catalog = Catalog(project="edgegpu", charset="utf-8")
    plain = dict.fromkeys(("_", "words", "gettext", "phrase"))
    counted = dict.fromkeys(("ngettext", "phrase_n", "_count"), (1, 2))
    found = extract_from_dir(SOURCES, METHODS, OPTIONS, keywords={**plain, **counted})
    for name, _, message, comments, context in found:
        catalog.add(message, None, [(f"cloud_sync/edgegpu_cloud/{name}", 0)], auto_comments=comments, context=context)
    for folder in SENTENCES:
        for name, _, message, _, _ in extract_from_dir(folder, METHODS[1:], keywords=_SENTENCES):
            catalog.add(message, None, [(f"{folder.name}/{name}", 0)])
    return catalog


def path_of(language: str) -> Path:
    """Return the path of a language's translations."""
    return TRANSLATIONS / language / "LC_MESSAGES/console.po"


def translated(language: str) -> Catalog:
    """Return the translations of a language; an empty catalog where there is no file."""
    path = path_of(language)
    if not path.exists():
        return Catalog(locale=language, charset="utf-8")
    with path.open("rb") as file:
        return read_po(file, locale=language, charset="utf-8")


def gaps(language: str) -> list[str]:
    """Return what is wrong with the translations of a language, a line for each."""
    texts, there = extracted(), translated(language)
    lines = []
    for message in texts:
        if not message.id:
            continue
        known = there.get(message.id, message.context)
        if known is None or not _whole(known):
            lines.append(f"no translation: {_words(message)}")
        elif _placeholders(message.id) - _placeholders(known.string):
            lines.append(f"another placeholder: {_words(message)}")
    lines += [f"nothing uses: {_words(one)}" for one in there if one.id and texts.get(one.id, one.context) is None]
    return lines


def _whole(message: Message) -> bool:
    strings = message.string if isinstance(message.string, tuple | list) else (message.string,)
    return not message.fuzzy and all(strings)


def _placeholders(texts: object) -> set[str]:
    """Return the placeholders of all forms; a form that says "one" may leave the number out."""
    all_of = texts if isinstance(texts, tuple | list) else (texts,)
    return set(_PLACEHOLDER.findall(str(all_of[-1])))


def _words(message: Message) -> str:
    return repr(message.id[0] if isinstance(message.id, tuple | list) else message.id)


def update(language: str) -> None:
    """Write the texts of the sources into a language's file; what nobody has translated is empty there."""
    catalog = translated(language)
    catalog.update(extracted(), no_fuzzy_matching=True)
    catalog.obsolete.clear()
    buffer = io.BytesIO()
    write_po(buffer, catalog, width=100, omit_header=False, sort_output=True, no_location=True, ignore_obsolete=True)
    kept = [line for line in buffer.getvalue().splitlines() if not _HEADER_NOISE.match(line)]
    path_of(language).parent.mkdir(parents=True, exist_ok=True)
    path_of(language).write_bytes(b"\n".join(kept) + b"\n")


_HEADER_NOISE = re.compile(
    rb'"(POT-Creation-Date|PO-Revision-Date|Generated-By|Last-Translator|Report-Msgid-Bugs-To).*|# .*'
)


def main() -> int:
    """Update the translations, or check them."""
    parser = argparse.ArgumentParser(description="bring the console's translations up to date")
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a translation is missing")
    if parser.parse_args().check:
        lines = gaps("zh")
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return 1 if lines else 0
    update("zh")
    sys.stdout.writelines(f"{line}\n" for line in gaps("zh"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
