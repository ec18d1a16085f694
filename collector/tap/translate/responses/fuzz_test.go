package responses_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/collector/tap/translate/responses"
)

// FuzzRequest translates any body. The result must be a chat completion whose messages have a role,
// or an error with a message.
func FuzzRequest(f *testing.F) {
	files, err := filepath.Glob("testdata/request/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(files, "testdata/refused.txtar") {
		a, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		call, err := responses.Dialect{}.Request(body)
		if err != nil {
			if e, is := errors.AsType[*translate.Error](err); !is || e.Status != 400 || e.Message == "" || e.Code == "" {
				t.Fatalf("%#v", err)
			}
			return
		}
		var chat struct {
			Messages []struct {
				Role    string
				Content any
			}
			Stream *bool
		}
		if err := json.Unmarshal(call.Chat, &chat); err != nil || chat.Messages == nil || chat.Stream != nil {
			t.Fatalf("%v: %s", err, call.Chat)
		}
		for _, m := range chat.Messages {
			if m.Role == "" {
				t.Fatalf("a message without a role: %s", call.Chat)
			}
		}
		a := &translate.Answer{ID: "a", Content: json.RawMessage(`"x"`), Calls: []translate.ToolCall{{ID: json.RawMessage(`"c"`), Name: json.RawMessage(`"f"`), Arguments: json.RawMessage(`"{}"`)}}}
		if whole := call.Reply.Whole(nil, a); !json.Valid(whole) {
			t.Fatalf("not JSON: %s", whole)
		}
		doneItems(t, call.Reply.Events(nil, a))
	})
}

// BenchmarkRequest translates a request of 40 KB with the tools of Codex and 40 calls.
func BenchmarkRequest(b *testing.B) {
	body := largeRequest()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (responses.Dialect{}).Request(body); err != nil {
			b.Fatal(err)
		}
	}
}

func largeRequest() []byte {
	text := strings.Repeat("A line of \\\"text\\\" with escapes.\\n", 10)
	var s strings.Builder
	s.WriteString(`{"model":"m","stream":true,"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"` + strings.Repeat(text, 10) + `"}]}`)
	for range 20 {
		s.WriteString(`,{"type":"reasoning","id":"rs_a_1_0","summary":[],"content":[{"type":"reasoning_text","text":"` + text + `"}]}`)
		s.WriteString(`,{"type":"function_call","id":"fc_a_1_1","name":"exec_command","arguments":"{\"cmd\": \"ls\"}","call_id":"call_0"}`)
		s.WriteString(`,{"type":"function_call_output","call_id":"call_0","output":"` + text + `"}`)
	}
	s.WriteString(`],"tools":[`)
	for i := range 12 {
		if i > 0 {
			s.WriteByte(',')
		}
		s.WriteString(`{"type":"function","name":"tool_` + string(rune('a'+i)) + `","description":"` + text + text + `","strict":false,"parameters":{"type":"object","properties":{"cmd":{"type":"string","description":"` + text + `"}},"required":["cmd"]}}`)
	}
	s.WriteString(`],"tool_choice":"auto","store":false,"include":["reasoning.encrypted_content"],"reasoning":{"summary":"auto"}}`)
	return []byte(s.String())
}

// TestAllocations limits the allocations for a request of 40 KB.
func TestAllocations(t *testing.T) {
	body := largeRequest()
	if len(body) < 35_000 {
		t.Fatal(len(body))
	}
	if n := testing.AllocsPerRun(20, func() { _, _ = responses.Dialect{}.Request(body) }); n > 100 {
		t.Errorf("%v allocations", n)
	}
}
