"""Writes nfc9.txt: the data of Unicode 9.0 for canonical composition.
Combining classes and canonical decompositions of an assigned character never change, so any
Python with Unicode 9 or later writes the same file, without the code points that 9.0 had not
assigned.

usage: nfc9.py FOLDER, the folder of unassigned9.txt
"""
import sys
import unicodedata as u

folder = sys.argv[1]
later = set()
for line in open(folder + "/unassigned9.txt"):
    a, b = (int(x, 16) for x in line.split())
    later.update(range(a, b + 1))

out = open(folder + "/nfc9.txt", "w")
for c in range(0x110000):
    if c in later or 0xAC00 <= c <= 0xD7A3:
        continue
    ch = chr(c)
    d = u.decomposition(ch)
    d = "" if d.startswith("<") else d
    ccc = u.combining(ch)
    if not d and not ccc:
        continue
    parts = ["%x" % c, str(ccc)] + [x.lower().lstrip("0") for x in d.split()]
    if d and u.normalize("NFC", ch) != ch:
        parts.append("!")  # never the result of composition
    out.write(" ".join(parts) + "\n")
