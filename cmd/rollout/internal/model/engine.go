package model

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// maxEngineFile is the maximum size of config.json and generation_config.json. The files of real
// models are only a few KB long.
const maxEngineFile = 4 << 20

// readEngine reads the engine's stop ids and vocabulary size into m. A field of the wrong type
// counts as missing.
//
// SGLang stops at the ids in generation_config.json, at the ids in config.json, and at the
// tokenizer's end-of-text token. The vocabulary size is in config.json.
func readEngine(files *source, m *prompt.Model) error {
	config, err := readJSON(files, "config.json")
	if err != nil {
		return err
	}
	generation, err := readJSON(files, "generation_config.json")
	if err != nil {
		return err
	}
	text := get(config, "text_config").Map() // a multimodal model has its text settings in text_config
	for _, part := range []*chat.Map{config, text} {
		if n, ok := get(part, "vocab_size").Int(); ok && n > 0 && n <= math.MaxInt32 {
			// The engine cannot sample ids at or above this size, but a prompt can contain such
			// ids.
			m.VocabSize = max(int(n), m.Tokenizer.VocabSize())
			break
		}
	}
	stops := ids(get(config, "eos_token_id"))
	if len(stops) == 0 {
		stops = ids(get(text, "eos_token_id"))
	}
	stops = append(stops, ids(get(generation, "eos_token_id"))...)
	if m.Template != nil {
		if id, ok := m.Tokenizer.ID(m.Template.EOSToken()); ok {
			stops = append(stops, id)
		}
	}
	slices.Sort(stops)
	m.StopIDs = slices.Compact(stops)
	return nil
}

func get(m *chat.Map, key string) chat.Value {
	if m == nil {
		return chat.Value{}
	}
	v, _ := m.Get(key)
	return v
}

// ids returns the token ids in v, which can be one id or a list of ids.
func ids(v chat.Value) []int32 {
	var out []int32
	for _, x := range slices.Concat(v.Items(), []chat.Value{v}) {
		if id, ok := x.Int(); ok && id >= 0 && id <= math.MaxInt32 {
			out = append(out, int32(id))
		}
	}
	return out
}

// readJSON reads a JSON object from a file in the folder. Like Python, it accepts NaN and Infinity.
// It returns nil if the file does not exist.
func readJSON(from *source, name string) (*chat.Map, error) {
	b, err := read(from, func(files fs.FS) ([]byte, error) {
		f, err := files.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // read only
		return io.ReadAll(io.LimitReader(f, maxEngineFile+1))
	})
	var v chat.Value
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && len(b) > maxEngineFile:
		err = fmt.Errorf("larger than %s", format.Size(maxEngineFile))
	case err == nil:
		if v, err = chat.FromJSON(b); err == nil && v.Map() == nil {
			err = errors.New("not a JSON object")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v.Map(), nil
}
