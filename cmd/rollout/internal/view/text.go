package view

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A decoder turns tokens into text. A nil decoder stands for no tokenizer.
type decoder struct {
	tokenizer *bpe.Tokenizer
	messages  *decode.Decoder

	once  sync.Once
	lower [][]byte // bytes of every token in lower case, for search
}

func newDecoder(t *bpe.Tokenizer) *decoder {
	if t == nil {
		return nil
	}
	return &decoder{tokenizer: t, messages: decode.New(t)}
}

// bytes returns the bytes of a token, or nil if the tokenizer lacks it.
func (d *decoder) bytes(id int32) []byte {
	b, err := d.tokenizer.Bytes(id)
	if err != nil {
		return nil
	}
	return b
}

// parts returns the text of tokens, split at the special tokens.
func (d *decoder) parts(ids []int32) []part {
	out := []part{}
	var plain []byte
	flush := func() {
		if len(plain) > 0 {
			out = append(out, part{Text: string(appendText(nil, plain))})
			plain = plain[:0]
		}
	}
	for _, id := range ids {
		b := d.bytes(id)
		if d.tokenizer.IsSpecial(id) {
			flush()
			out = append(out, part{string(appendText(nil, b)), 1})
			continue
		}
		plain = append(plain, b...)
	}
	flush()
	return out
}

// conversation returns the messages of a row as an array. It returns nil if the chat template is not known: the page
// then shows one block per span, with the special tokens.
func (d *decoder) conversation(r *sink.StoredRow) json.RawMessage {
	if !d.messages.Known() {
		return nil
	}
	return decode.AppendJSON(nil, d.messages.Messages(r))
}

// A vocabulary collects the texts of the tokens of one sample.
type vocabulary struct {
	decoder *decoder
	texts   map[int32]string
}

func (d *decoder) vocab() *vocabulary {
	v := &vocabulary{decoder: d}
	if d != nil {
		v.texts = map[int32]string{}
	}
	return v
}

func (v *vocabulary) add(ids []int32) {
	if v.decoder == nil {
		return
	}
	for _, id := range ids {
		if _, ok := v.texts[id]; ok {
			continue
		}
		if b := v.decoder.bytes(id); len(b) > 0 {
			v.texts[id] = string(appendText(nil, b))
		}
	}
}

// appendLower appends the text of tokens in lower case. It is fast, but a letter outside ASCII that
// consists of several tokens keeps its case.
func (d *decoder) appendLower(dst []byte, ids []int32) []byte {
	d.once.Do(func() {
		d.lower = make([][]byte, d.tokenizer.VocabSize())
		for id := range d.lower {
			d.lower[id] = bytes.ToLower(d.bytes(int32(id))) //nolint:gosec // a vocabulary has far fewer tokens
		}
	})
	for _, id := range ids {
		if id >= 0 && int(id) < len(d.lower) {
			dst = append(dst, d.lower[id]...)
		}
	}
	return dst
}
