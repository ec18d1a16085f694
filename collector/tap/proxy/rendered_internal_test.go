package proxy

import (
	"net/url"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// A lengthRenderer renders one id for each byte of the messages.
type lengthRenderer struct{}

func (lengthRenderer) Render(c *Conversation) (ids []int32, _ error) {
	for _, m := range c.Messages {
		ids = append(ids, make([]int32, len(m))...)
	}
	return ids, nil
}

func (lengthRenderer) Parse(*Output) ([]byte, bool) { return []byte("{}"), false }

// TestPromptTokens checks that a count is the length of the rendered prompt.
func TestPromptTokens(t *testing.T) {
	t.Parallel()
	cfg := Config{Engines: []*url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}}
	cfg.Renderer = lengthRenderer{}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if n, err := p.promptTokens([]byte(`{"model":"x","messages":[{"a":1},{}],"max_tokens":5}`)); n != 9 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if _, err := p.promptTokens([]byte(`{"messages":5}`)); err == nil {
		t.Error("a body without messages has a count")
	}
}

// FuzzRendered checks that every body is accepted or refused.
func FuzzRendered(f *testing.F) {
	f.Add(`{"messages":[{"role":"user","content":"x"}],"tools":[],"n":1,"temperature":0.5}`)
	f.Add(`{"messages":[null],"response_format":{"type":"text"},"stop":"a","max_tokens":null}`)
	f.Add(`{"messages":[]}{`)
	f.Fuzz(func(t *testing.T, body string) {
		s := new(tokenize.Scanner)
		for _, sglang := range []bool{false, true} {
			q, err := readRendered(s, []byte(body), sglang)
			if err != nil {
				if _, ok := err.(*refusal); !ok { //nolint:errorlint // it must be one
					t.Fatalf("%T %v", err, err)
				}
				continue
			}
			p, _ := (&rendered{q: q, sglang: sglang, prompt: []int32{1}}).payload("a")
			buf := make([]byte, p.size()+1)
			n, _ := p.send().Read(buf)
			s.ResetBytes(buf[:n])
			if err := s.Skip(); err != nil {
				t.Fatalf("the engine would get %s: %v", buf[:n], err)
			}
		}
	})
}
