package decode

import (
	"strings"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

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

// Answer returns the text that the model wrote, without calls of tools. The last call can be cut off.
func (d *Decoder) Answer(ids []int32) string {
	full := d.text(ids)
	if d.form != nil && (d.form.harmony || d.form.bareCalls) {
		m := Message{Content: full}
		if m.split(d, new(int)); m.Content == "" && len(m.Calls) > 0 {
			return ""
		}
	}
	cut := callBlocks.ReplaceAllString(full, "")
	if cut == full {
		return strings.TrimSpace(Text(d.tok, ids))
	}
	for _, piece := range d.kept { // the text of an engine lacks special tokens
		cut = strings.ReplaceAll(cut, piece, "")
	}
	return strings.TrimSpace(cut)
}
