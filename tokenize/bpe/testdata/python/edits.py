"""What the reference engine does with tokenizer.json files, for the tests of package bpe.

Reads one JSON list per line: the text of a file, and texts to encode. Answers null if the
engine rejects the file, otherwise a list: for each text its ids, with and without the
post-processor, and the decoded ids.
"""
import json
import os
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402: reads the environment

want = "0.23.2"
if tokenizers.__version__ != want:
    sys.exit("tokenizers %s is installed, the vectors are of %s" % (tokenizers.__version__, want))
for line in sys.stdin.buffer:
    file, texts = json.loads(line)
    answer = []
    try:
        tok = tokenizers.Tokenizer.from_str(file)
        for text in texts:
            ids = tok.encode(text, add_special_tokens=False).ids
            answer.append([ids, tok.encode(text).ids, tok.decode(ids, skip_special_tokens=False)])
    except BaseException:  # a panic of the engine is not an Exception
        answer = None
    print(json.dumps(answer, separators=(",", ":")))
