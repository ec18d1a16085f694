package bpe_test

import (
	"fmt"
	"testing/fstest"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

func Example() {
	// Usually os.DirFS("Qwen/Qwen3-4B"), the folder of a model repository.
	folder := fstest.MapFS{bpe.FileJSON: {Data: smallFile(nil)}}
	tok, err := bpe.Load(folder, bpe.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.AppendTokens(nil, "<s>abc ab")
	if err != nil {
		fmt.Println(err)
		return
	}
	plain, err := tok.AppendTokensWith(nil, "<s>", bpe.EncodeOptions{Added: bpe.AddedNone})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := tok.AppendText(nil, ids, bpe.DecodeOptions{SkipSpecial: true})
	fmt.Println(ids, plain, string(text), err)
	// Output: [259 257 32 256] [60 115 62] abc ab <nil>
}
