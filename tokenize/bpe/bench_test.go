package bpe_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// benchBytes returns the size of the benchmark corpus. With -short the benchmarks only have to run.
func benchBytes() int {
	if testing.Short() {
		return 256 << 10
	}
	return 8 << 20
}

// BenchmarkEncode encodes 8 MiB of mixed documents, with caches emptied before each pass (cold) or
// filled by earlier passes (warm).
func BenchmarkEncode(b *testing.B) {
	docs := corpus(b, benchBytes())
	size := len(strings.Join(docs, ""))
	for _, name := range bpetest.Names() {
		for _, cache := range []string{"cold", "warm"} {
			b.Run(fmt.Sprintf("tokenizer=%s/cache=%s", name, cache), func(b *testing.B) {
				tok := bpetest.Tokenizer(b, name)
				ids := make([]int32, 0, size)
				for _, d := range docs { // grows the scratch memory
					ids = append(ids[:0], encode(b, tok, d, bpe.EncodeOptions{})...)
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if cache == "cold" {
						b.StopTimer()
						tok.ForgetWords()
						b.StartTimer()
					}
					ids = ids[:0]
					var err error
					for _, d := range docs {
						if ids, err = tok.AppendTokens(ids, d); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(len(ids))*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}

// BenchmarkDecode decodes the ids of 1 MiB of mixed documents.
func BenchmarkDecode(b *testing.B) {
	docs := corpus(b, 1<<20)
	for _, name := range bpetest.Names() {
		b.Run("tokenizer="+name, func(b *testing.B) {
			tok := bpetest.Tokenizer(b, name)
			var ids []int32
			for _, d := range docs {
				ids = append(ids, encode(b, tok, d, bpe.EncodeOptions{})...)
			}
			text := make([]byte, 0, 2<<20)
			b.SetBytes(int64(len(strings.Join(docs, ""))))
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if text, err = tok.AppendText(text[:0], ids, bpe.DecodeOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(ids))*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkLoad loads a tokenizer.json from memory.
func BenchmarkLoad(b *testing.B) {
	for _, name := range bpetest.Names() {
		b.Run("tokenizer="+name, func(b *testing.B) {
			raw := bpetest.Read(b, name, bpe.FileJSON)
			files := fstest.MapFS{bpe.FileJSON: {Data: raw}}
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bpe.Load(files, bpe.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRun encodes 1 MiB that is a single pre-token.
func BenchmarkRun(b *testing.B) {
	random := randomLetters(rand.New(rand.NewPCG(2, 3)), lowerCase, 1<<20)
	for name, text := range map[string]string{"same": strings.Repeat("a", 1<<20), "random": random} {
		b.Run("letters="+name, func(b *testing.B) {
			tok := bpetest.Tokenizer(b, "qwen3")
			b.SetBytes(1 << 20)
			var ids []int32
			for b.Loop() {
				ids = ids[:0]
				ids, _ = tok.AppendTokens(ids, text)
			}
		})
	}
}
