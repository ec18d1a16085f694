package enginesim

import (
	_ "embed" // for the template
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/gzip"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// SmallTemplate is a chat template in the format of Qwen3. It renders every message exactly as the
// scripts sample it, reasoning included, so the prompt of a conversation begins with the tokens of
// its earlier calls unless the client changed a message.
//
//go:embed small.jinja
var SmallTemplate string

// SmallModel returns a model that needs no files: the tokenizer of lettasim.Model, with the
// template SmallTemplate. Every text can be tokenized.
func SmallModel() (*bpe.Tokenizer, *chat.Template, error) {
	text, err := unpacked(lettasim.Model(), "tokenizer.json.gz")
	if err != nil {
		return nil, nil, fmt.Errorf("enginesim: the built-in model: %w", err)
	}
	tokenizer, err := bpe.Parse(text, bpe.Options{})
	if err != nil {
		return nil, nil, fmt.Errorf("enginesim: the built-in model: %w", err)
	}
	template, err := chat.Parse("small", SmallTemplate, chat.Options{})
	if err != nil {
		return nil, nil, fmt.Errorf("enginesim: the built-in model: %w", err)
	}
	return tokenizer, template, nil
}

func unpacked(files fs.FS, name string) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
