package decode

import "github.com/rollout-rl/rollout/tokenize/bpe"

// Text returns the text of the ids, as an engine prints it: without special tokens. An id from the
// padded vocabulary has no text.
func Text(tok *bpe.Tokenizer, ids []int32) string {
	var b []byte
	for len(ids) > 0 {
		n := 0
		for n < len(ids) && tok.Has(ids[n]) {
			n++
		}
		b, _ = tok.AppendText(b, ids[:n], bpe.DecodeOptions{SkipSpecial: true}) // cannot fail, because every id was checked
		ids = ids[min(n+1, len(ids)):]
	}
	return string(b)
}
