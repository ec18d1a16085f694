package bpe

import "slices"

// The parts of a tokenizer.json around the model. Each part accepts only the implemented features
// and names any other feature in its error.

type addedSpec struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// A part is the common form of all parts.
type part struct {
	Type string
	raw  []byte
}

// decodeRaw stores the text and its type. The code that knows the type decodes the rest.
func (p *part) decodeRaw(raw []byte) error {
	p.Type, p.raw = "", slices.Clone(raw)
	r := newReader(raw, false)
	switch r.Kind() {
	case 'n':
		return nil
	case '{':
	default:
		return notA(r, "an object")
	}
	return r.object(func(key string) error {
		value, err := r.raw()
		if err != nil || key != "type" {
			return err
		}
		return strict(value, key, &p.Type)
	})
}

type (
	normalizerSpec    struct{ part }
	preTokenizerSpec  struct{ part }
	postProcessorSpec struct{ part }
	decoderSpec       struct{ part }
)

// pipeline parses all parts except the post-processor into t.
func (f *jsonFile) pipeline(t *Tokenizer) error {
	var err error
	if t.norm, err = normSteps(f.normalizer.part); err != nil {
		return err
	}
	switch chars, err := f.spellsChars(); {
	case err != nil:
		return err
	case chars:
		if err := f.spaces(t); err != nil {
			return err
		}
		t.decoder, err = readDecoder(f.decoder.part)
		return err
	}
	if f.decoder.Type != "ByteLevel" {
		return unsupported("decoder %s", f.decoder.name())
	}
	if err := strict(f.decoder.raw, "decoder", new(byteLevelSpec)); err != nil {
		return err
	}
	return f.splits(t)
}

func (p *part) name() string {
	switch {
	case p.raw == nil || string(p.raw) == "null":
		return "null"
	case p.Type == "":
		return "without a type"
	}
	return p.Type
}
