"""Mistral's own engine behind a pipe, for the tests of package bpe.

usage: tekken.py ask tekken.json

Reads one JSON list per line. ["none", text] is answered with a line of ids, ["decode", ids] with
two JSON strings: special tokens skipped, and printed.
"""
import json
import sys
from importlib.metadata import version

from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

want = "1.13.1"
if version("mistral-common") != want:
    sys.exit("mistral-common %s is installed, the tests are of %s" % (version("mistral-common"), want))
tok = Tekkenizer.from_file(sys.argv[2])
for line in sys.stdin.buffer:
    kind, arg = json.loads(line)
    if kind == "none":
        answer = tok.encode(arg, bos=False, eos=False)
    else:
        answer = [tok.decode(arg, SpecialTokenPolicy.IGNORE), tok.decode(arg, SpecialTokenPolicy.KEEP)]
    print(json.dumps(answer, separators=(",", ":")))
