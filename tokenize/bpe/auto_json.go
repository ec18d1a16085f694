package bpe

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/internal/modelfile"
)

// The files that AutoTokenizer reads in addition to tokenizer.json.
const (
	fileModelConfig = "config.json"
	fileSpecialMap  = "special_tokens_map.json"
	fileAddedTokens = "added_tokens.json"
)

// maxConfigBytes limits the size of each of these files. The largest known tokenizer_config.json is
// 1.2 MB.
const maxConfigBytes = 32 << 20

// readObject reads a JSON object from a file in the folder. It keeps only the keys for which
// wanted returns true. It returns nil if the file does not exist.
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
	r := newReader(raw, true)
	for key := range r.Members {
		if wanted(key) {
			v.keys, v.vals = append(v.keys, strings.Clone(key)), append(v.vals, r.value())
		}
	}
	return v, r.end()
}
