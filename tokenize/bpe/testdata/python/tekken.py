"""Mistral's own engine behind a pipe, for the tests of package bpe.

usage: tekken.py encode|decode tekken.json

encode reads one JSON string per line and answers each with a line of ids. decode reads one JSON
list of ids per line and answers with two JSON strings: special tokens skipped, and printed.
"""
import json
import sys
from importlib.metadata import version

from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

want = "1.13.1"
if version("mistral-common") != want:
    sys.exit("mistral-common %s is installed, the tests are of %s" % (version("mistral-common"), want))
what, path = sys.argv[1:]
tok = Tekkenizer.from_file(path)
for line in sys.stdin.buffer:
    arg = json.loads(line)
    if what == "encode":
        answer = tok.encode(arg, bos=False, eos=False)
    else:
        answer = [tok.decode(arg, SpecialTokenPolicy.IGNORE), tok.decode(arg, SpecialTokenPolicy.KEEP)]
    print(json.dumps(answer, separators=(",", ":")))
