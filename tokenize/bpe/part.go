package bpe

import (
	"slices"
	"strings"
)

// The part_*.go files parse every part of a tokenizer.json except the model. They accept only the
// implemented features. For any other feature, they return an error that names the feature.

// A part is an unparsed part of a tokenizer.json.
type part struct {
	Type string
	raw  []byte
}

// read stores the text of an object or null, and the type of the object. The code for that type
// decodes the text later.
func (p *part) read(r *jsonReader) {
	*p = part{}
	null := r.Kind() == 'n'
	from := r.Offset()
	if null {
		r.Null()
	} else {
		for key := range r.Members {
			if key == "type" {
				p.Type = strings.Clone(r.Text())
			}
		}
	}
	if r.Err() == nil {
		p.raw = slices.Clone(r.b[from:r.Offset()])
	}
}

// pipeline parses all parts except the post-processor into t.
func (f *jsonFile) pipeline(t *Tokenizer) error {
	var err error
	if t.norm, err = normSteps(f.normalizer); err != nil {
		return err
	}
	switch chars, err := f.spellsChars(); {
	case err != nil:
		return err
	case chars:
		if err := f.spaces(t); err != nil {
			return err
		}
		t.decoder, err = readDecoder(f.decoder)
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
