package proxy

import (
	"encoding/json"
	"io"
	"net/url"
	"testing"
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

// TestRenderedTools checks which tools the template gets, and which the output can call.
func TestRenderedTools(t *testing.T) {
	t.Parallel()
	desk := newDesk()
	defer desk.free()
	for _, c := range []struct {
		members            string
		sglang             bool
		rendered, callable string
		single             bool
	}{
		{`"tools":[{}]`, true, "[{}]", "[{}]", false},
		{`"tools":[{}],"tool_choice":"auto","parallel_tool_calls":true`, true, "[{}]", "[{}]", false},
		{`"tools":[{}],"tool_choice":"none"`, true, "", "", false},
		{`"tool_choice":"none","tools":[{}]`, false, "[{}]", "", false},
		{`"tools":[{}],"parallel_tool_calls": false`, true, "[{}]", "[{}]", true},
		{`"tools":[]`, false, "", "", false},
	} {
		q, err := readRendered(desk.s, []byte("{"+c.members+"}"), c.sglang)
		if err != nil || string(q.conversation.Tools) != c.rendered || string(q.callable) != c.callable || q.single != c.single {
			t.Errorf("%s: %v, the template gets %s and the output can call %s, single %v", c.members, err, q.conversation.Tools, q.callable, q.single)
		}
	}
	for _, wrong := range []string{`"parallel_tool_calls":1`, `"tool_choice":5`} {
		if _, err := readRendered(desk.s, []byte("{"+wrong+"}"), false); err == nil {
			t.Errorf("%s was accepted", wrong)
		}
	}
}

// FuzzRendered checks that every body is accepted or refused.
func FuzzRendered(f *testing.F) {
	f.Add(`{"messages":[{"role":"user","content":"x"}],"tools":[],"n":1,"temperature":0.5}`)
	f.Add(`{"messages":[null],"response_format":{"type":"text"},"stop":"a","max_tokens":null}`)
	f.Add(`{"messages":[]}{`)
	f.Fuzz(func(t *testing.T, body string) {
		desk := newDesk()
		defer desk.free()
		s := desk.s
		for _, sglang := range []bool{false, true} {
			q, err := readRendered(s, []byte(body), sglang)
			if err != nil {
				if _, ok := err.(*refusal); !ok { //nolint:errorlint // it must be one
					t.Fatalf("%T %v", err, err)
				}
				continue
			}
			p, _ := (&rendered{q: q, sglang: sglang, prompt: []int32{1}}).payload("a")
			sent, err := io.ReadAll(p.send())
			if err != nil || int64(len(sent)) != p.size() || !json.Valid(sent) {
				t.Fatalf("the engine would get %s: %v", sent, err)
			}
		}
	})
}
