package bpe

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/internal/modelfile"
)

// The files that AutoTokenizer reads in addition to tokenizer.json.
const (
	fileModelConfig = "config.json"
	fileSpecialMap  = "special_tokens_map.json"
	fileAddedTokens = "added_tokens.json"
)

// maxConfigBytes limits each of these files. The largest known tokenizer_config.json has 1.2 MB.
const maxConfigBytes = 32 << 20

type jsonValue struct {
	kind byte   // 'n' null, 't' true, 'f' false, '0' number, '"', '[', '{'; 0: no value
	text string // of a string or number
	keys []string
	vals []jsonValue // of a list or object
}

func (v *jsonValue) is() bool { return v != nil && v.kind != 0 && v.kind != 'n' }

// truthy returns Python's bool(v).
func (v *jsonValue) truthy() bool {
	switch {
	case !v.is(), v.kind == 'f':
		return false
	case v.kind == '"':
		return v.text != ""
	case v.kind == '[', v.kind == '{':
		return len(v.vals) > 0
	case v.kind == '0':
		n, _ := strconv.ParseFloat(v.text, 64) // infinite if it is too large, as in Python
		return n != 0
	}
	return true
}

func (v *jsonValue) get(key string) *jsonValue {
	if v == nil || v.kind != '{' {
		return nil
	}
	if i := slices.Index(v.keys, key); i >= 0 {
		return &v.vals[i]
	}
	return nil
}

func (v *jsonValue) what() string {
	switch v.kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a bool"
	case '0':
		return "a number"
	case '"':
		return "a string"
	case '[':
		return "a list"
	}
	return "an object"
}

// tree reads a value into memory. A duplicate key is an error, because parsers disagree about it.
func (r *jsonReader) tree(depth int) (jsonValue, error) {
	if depth > maxJSONDepth {
		return jsonValue{}, r.errorf("nested more than %d levels deep", maxJSONDepth)
	}
	switch c := r.peek(); c {
	case '{':
		v := jsonValue{kind: c}
		seen := map[string]bool{}
		err := r.object(func(key string) error {
			if seen[key] {
				return r.errorf("duplicate field %.40q", key)
			}
			seen[key] = true
			x, err := r.tree(depth + 1)
			v.keys, v.vals = append(v.keys, key), append(v.vals, x)
			return err
		})
		return v, err
	case '[':
		r.i++
		v := jsonValue{kind: c}
		for first := true; ; {
			ok, err := r.more(&first, ']')
			if err != nil || !ok {
				return v, err
			}
			x, err := r.tree(depth + 1)
			if err != nil {
				return v, err
			}
			v.vals = append(v.vals, x)
		}
	case '"':
		s, err := r.str()
		return jsonValue{kind: c, text: string(s)}, err
	default:
		s, err := r.scalar()
		if err != nil {
			return jsonValue{}, err
		}
		if c == 'n' || c == 't' || c == 'f' {
			return jsonValue{kind: c}, nil
		}
		return jsonValue{kind: '0', text: string(s)}, nil
	}
}

// readObject reads a JSON object from the folder, and keeps only the keys that wanted accepts. It
// returns nil if there is no such file.
func readObject(folder fs.FS, name string, wanted func(key string) bool) (*jsonValue, error) {
	raw, err := modelfile.Read(folder, name, maxConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if bad, ok := errors.AsType[*modelfile.Error](err); ok {
		return nil, fmt.Errorf("%s: %w: %s", name, ErrCorrupt, bad.Reason)
	}
	if err != nil {
		return nil, err
	}
	v, err := parseObject(raw, wanted)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

func parseObject(raw []byte, wanted func(key string) bool) (*jsonValue, error) {
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("%w: byte %d: not valid UTF-8", ErrCorrupt, validPrefix(raw))
	}
	v := &jsonValue{kind: '{'}
	seen := map[string]bool{}
	r := &jsonReader{b: bytes.TrimRight(raw, " \t\r\n"), python: true}
	err := r.object(func(key string) error {
		if seen[key] {
			return r.errorf("duplicate field %.40q", key)
		}
		seen[key] = true
		if !wanted(key) {
			_, err := r.raw()
			return err
		}
		x, err := r.tree(0)
		v.keys, v.vals = append(v.keys, key), append(v.vals, x)
		return err
	})
	if err == nil && r.i != len(r.b) {
		err = r.errorf("unexpected data after the end")
	}
	return v, err
}
