package messages_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/translate/messages"
)

// longRequest returns a request of about 40 KB, as an agent sends it.
func longRequest() []byte {
	var b strings.Builder
	b.WriteString(`{"model":"policy","messages":[{"role":"user","content":[{"type":"text","text":"do it"}]}`)
	prose := strings.Repeat(`A line of \"text\" in a file.\n`, 20)
	for i := range 20 {
		fmt.Fprintf(&b, `,{"role":"assistant","content":[{"type":"thinking","thinking":"Let me look.\n","signature":"%d"},{"type":"text","text":"I look."},{"type":"tool_use","id":"call_%d","name":"Bash","input":{"command":"cat file","n":%d}}]}`, i, i, i)
		fmt.Fprintf(&b, `,{"role":"user","content":[{"tool_use_id":"call_%d","type":"tool_result","content":"%s","is_error":false}]}`, i, prose)
	}
	fmt.Fprintf(&b, `],"system":[{"type":"text","text":"%s","cache_control":{"type":"ephemeral"}}],"tools":[`, strings.Repeat(prose, 8))
	for i := range 12 {
		fmt.Fprintf(&b, `{"name":"tool%d","description":"%s","input_schema":{"type":"object","properties":{"a":{"type":"string","description":"%s"}},"required":["a"]}},`, i, prose, prose)
	}
	out := strings.TrimSuffix(b.String(), ",") + `],"metadata":{"user_id":"u"},"max_tokens":32000,"thinking":{"type":"adaptive"},"stream":true}`
	return []byte(out)
}

func BenchmarkRequest(b *testing.B) {
	body := longRequest()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (messages.Dialect{}).Request(body); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRequestAllocs limits the memory of a request: the body as a string, the chat completion, and a
// few small slices. The number does not depend on the number of messages.
func TestRequestAllocs(t *testing.T) {
	body := longRequest()
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := (messages.Dialect{}).Request(body); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 16 {
		t.Errorf("%v allocations, want at most 16", allocs)
	}
}
