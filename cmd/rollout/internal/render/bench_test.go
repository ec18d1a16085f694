package render_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/render"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// BenchmarkRender renders a conversation of 40 KB.
func BenchmarkRender(b *testing.B) {
	r := render.New(families[0].model(b))
	c := &proxy.Conversation{Messages: []json.RawMessage{json.RawMessage(`{"role":"user","content":"Do it."}`)}}
	for range 20 {
		c.Messages = append(c.Messages,
			json.RawMessage(`{"role":"assistant","content":"I look.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"bash","arguments":"{\"command\":\"ls -l\"}"}}]}`),
			json.RawMessage(`{"role":"tool","tool_call_id":"call_1","content":"`+strings.Repeat(`drwxr-xr-x 2 root root 4096 Nov 27 21:19 some-folder\n`, 34)+`"}`))
	}
	size := 0
	for _, m := range c.Messages {
		size += len(m)
	}
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		if _, err := r.Render(c); err != nil {
			b.Fatal(err)
		}
	}
}
