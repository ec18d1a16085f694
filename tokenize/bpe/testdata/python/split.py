"""How the reference engine splits texts, for the tests of package bpe.

Reads one object {"regex" or "string", "behavior", "invert", "texts"} or {"digits",
"texts"} per line, and answers each with a list of pieces for each text, or with an
error as a string.
"""
import json
import re
import sys

import tokenizers
from tokenizers import Regex, pre_tokenizers

want = "0.23.2"
if tokenizers.__version__ != want:
    sys.exit("tokenizers %s is installed, the vectors are of %s" % (tokenizers.__version__, want))

for line in sys.stdin.buffer:
    case = json.loads(line)
    try:
        if "digits" in case:
            split = pre_tokenizers.Digits(individual_digits=case["digits"])
        else:
            pattern = Regex(case["regex"]) if "regex" in case else case["string"]
            behavior = re.sub("(?<!^)([A-Z])", r"_\1", case["behavior"]).lower()
            split = pre_tokenizers.Split(pattern, behavior, case["invert"])
        answer = [[piece for piece, _ in split.pre_tokenize_str(text)] for text in case["texts"]]
    except Exception as e:
        answer = str(e)
    print(json.dumps(answer))
