"""Writes casing_table.go: the characters for which str.upper, str.title and str.casefold return
several characters or differ from Go's simple mappings, and the characters that are digits or
numerals beyond their category.

Usage: python casing.py > ../../casing_table.go
"""

import sys
import unicodedata

# Characters of later Unicode versions than the interpreter's are left to Go.


def quote(s):
    return '"' + "".join("\\u%04x" % ord(c) if ord(c) < 0x10000 else "\\U%08x" % ord(c) for c in s) + '"'


def table(name, doc, f, simple):
    print(f"\n// {name} {doc}\nvar {name} = map[rune]string{{")
    for cp in range(sys.maxunicode + 1):
        if 0xD800 <= cp < 0xE000:
            continue
        c = chr(cp)
        if len(f(c)) > 1 or simple and f(c) != simple(c):
            print(f"\t0x{cp:04x}: {quote(f(c))},")
    print("}")


def runes(name, doc, f):
    print(f"\n// {name} {doc}\nvar {name} = [][2]rune{{")
    start = last = None
    for cp in list(range(sys.maxunicode + 1)) + [None]:
        if cp is not None and f(chr(cp)):
            if start is None:
                start = cp
            last = cp
        elif start is not None:
            print(f"\t{{0x{start:04x}, 0x{last:04x}}},")
            start = None
    print("}")


print("package chat")
print("\n// Made by testdata/python/casing.py. Do not edit.")
table("upperTable", "holds the uppercase texts of several characters.", str.upper, None)
table("titleTable", "holds the titlecase texts of several characters.", str.title, None)
table("foldTable", "holds the case foldings that differ from the lowercase.", str.casefold, str.lower)
cat = unicodedata.category
runes("digitTable", "holds the digits that are no decimals.", lambda c: c.isdigit() and cat(c) != "Nd")
runes("numeralTable", "holds the numerals that are letters.", lambda c: c.isnumeric() and cat(c)[0] != "N")
