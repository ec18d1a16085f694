package bpe

import "fmt"

func (f *jsonFile) read(r *jsonReader) error {
	hasModel := false
	err := r.object(func(key string) error {
		switch key {
		case "model":
			hasModel = true
			return f.readModel(r)
		case "added_tokens":
			return value(r, key, &f.added)
		case "normalizer":
			return value(r, key, &f.normalizer)
		case "pre_tokenizer":
			return value(r, key, &f.preTokenizer)
		case "post_processor":
			return value(r, key, &f.postProcessor)
		case "decoder":
			return value(r, key, &f.decoder)
		case "version":
			var version string
			err := value(r, key, &version)
			if err == nil && version != "1.0" {
				err = unsupported("format version %.40q (want \"1.0\")", version)
			}
			return err
		case "truncation", "padding":
			raw, err := r.raw()
			if err == nil && string(raw) != "null" {
				err = unsupported("%s; set it to null", key)
			}
			return err
		}
		return unsupported("unknown top-level field %q", key)
	})
	if err != nil {
		return err
	}
	if !hasModel {
		return fmt.Errorf("%w: model is missing", ErrCorrupt)
	}
	return nil
}

// value decodes the value at r strictly into v. name is the part of the file, for errors.
func value(r *jsonReader, name string, v any) error {
	raw, err := r.raw()
	if err != nil {
		return err
	}
	return strict(raw, name, v)
}
