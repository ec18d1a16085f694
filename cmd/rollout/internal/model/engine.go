package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/rollout-rl/rollout/collector/prompt"
)

// maxEngineFile bounds the files that this file reads. Real models have a few KB.
const maxEngineFile = 4 << 20

// An ids is one token id, a list of them, or null.
type ids []int32

func (v *ids) UnmarshalJSON(b []byte) error {
	*v = nil
	if b[0] == '[' {
		return json.Unmarshal(b, (*[]int32)(v))
	}
	var one *int32
	err := json.Unmarshal(b, &one)
	if err == nil && one != nil {
		*v = ids{*one}
	}
	return err
}

// readEngine reads the ids at which the engine ends an output, and the size of its
// vocabulary.
//
// An engine stops at the ids of generation_config.json. Without that file it stops at the ids
// of config.json, and otherwise at the tokenizer's end of text. The size is in config.json.
func readEngine(dir string, m *prompt.Model) error {
	type text struct {
		VocabSize *int64 `json:"vocab_size"`
		EOS       ids    `json:"eos_token_id"`
	}
	var config struct {
		text
		Text *text `json:"text_config"` // of a model that also takes images
	}
	var generation struct {
		EOS ids `json:"eos_token_id"`
	}
	if err := errors.Join(readJSON(dir, "config.json", &config), readJSON(dir, "generation_config.json", &generation)); err != nil {
		return err
	}
	if config.Text != nil {
		if config.VocabSize == nil {
			config.VocabSize = config.Text.VocabSize
		}
		if config.EOS == nil {
			config.EOS = config.Text.EOS
		}
	}
	if n := config.VocabSize; n != nil {
		if *n <= 0 || *n > math.MaxInt32 {
			return fmt.Errorf("config.json: vocab_size is %d", *n)
		}
		// An engine cannot sample a larger id, but a prompt can have one.
		m.VocabSize = max(int(*n), m.Tokenizer.VocabSize())
	}
	m.StopIDs = generation.EOS
	if len(m.StopIDs) == 0 {
		m.StopIDs = config.EOS
	}
	if len(m.StopIDs) == 0 && m.Template != nil {
		if id, ok := m.Tokenizer.ID(m.Template.EOSToken()); ok {
			m.StopIDs = []int32{id}
		}
	}
	m.StopIDs = slices.Clone(m.StopIDs)
	slices.Sort(m.StopIDs)
	m.StopIDs = slices.Compact(m.StopIDs)
	return nil
}

// readJSON decodes a file of the folder into v. It does nothing if there is no such file.
func readJSON(dir, name string, v any) error {
	b, err := read(os.DirFS(dir), func(files fs.FS) ([]byte, error) {
		f, err := files.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read
		return io.ReadAll(io.LimitReader(f, maxEngineFile+1))
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && len(b) > maxEngineFile:
		err = fmt.Errorf("longer than %d MB", maxEngineFile>>20)
	case err == nil:
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
