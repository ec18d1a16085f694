package main

import (
	"os"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// loadModel reads a model's own tokenizer and chat template from its folder.
func loadModel(dir string) (*prompt.Model, error) {
	tokenizer, err := bpe.Load(os.DirFS(dir), bpe.Options{})
	if err != nil {
		return nil, usageError("tokens.tokenizer: %s: %w", dir, err)
	}
	templates, err := chat.LoadDir(dir, chat.Options{})
	if err != nil {
		return nil, usageError("tokens.tokenizer: %s: %w", dir, err)
	}
	// Where a model has a template for tools, the server takes it.
	return &prompt.Model{Template: templates.For(true), Tokenizer: tokenizer}, nil
}

// A speller says how a token is shown: as its number, or, with a tokenizer, as its
// text.
type speller func(id int32) string

func decimal(id int32) string { return strconv.Itoa(int(id)) }

// loadSpeller shows tokens as text: a space as ·, a line break and whatever cannot
// be printed escaped.
func loadSpeller(dir string) (speller, error) {
	tokenizer, err := bpe.Load(os.DirFS(dir), bpe.Options{})
	if err != nil {
		return nil, usageError("--tokenizer: %s: %w", dir, err)
	}
	return func(id int32) string {
		b, err := tokenizer.Bytes(id)
		if err != nil || len(b) == 0 {
			return "<" + decimal(id) + ">"
		}
		quoted := strconv.Quote(string(b))
		text := strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
		return strings.ReplaceAll(text, " ", "·")
	}, nil
}
