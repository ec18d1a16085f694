package render

import (
	"crypto/rand"
	"encoding/json"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// Parse implements proxy.Renderer.
func (r *Renderer) Parse(o *proxy.Output) (message []byte, calls bool) {
	m := r.decoder.Output(decode.Output{Prompt: o.Prompt, IDs: o.IDs, Stop: o.Stop, Tools: o.Tools != nil, IsText: textParameters(o.Tools)})
	if o.Single && len(m.Calls) > 1 {
		m.Calls = m.Calls[:1]
	}
	for i := range m.Calls {
		if c := &m.Calls[i]; c.ID == "" {
			c.ID = rand.Text()[:callIDLength]
		}
	}
	b := []byte(`{"role":"assistant","content":`)
	if m.Content == "" && len(m.Calls) > 0 {
		b = append(b, "null"...)
	} else {
		b = rowjson.AppendText(b, m.Content)
	}
	if m.Reasoning != "" {
		b = rowjson.AppendText(append(b, `,"reasoning_content":`...), m.Reasoning)
	}
	return append(decode.AppendCalls(b, `,"tool_calls":[`, `,"type":"function"`, m.Calls), '}'), len(m.Calls) > 0
}

// callIDLength is the length of the ids that Mistral's templates require. Each id has 45 random bits.
const callIDLength = 9

// textParameters returns a function that reports whether the value of a tool's parameter is always a string.
func textParameters(tools json.RawMessage) func(tool, parameter string) bool {
	var list []struct {
		Function struct {
			Name       string `json:"name"`
			Parameters struct {
				Properties map[string]struct {
					Type json.RawMessage `json:"type"`
				} `json:"properties"`
			} `json:"parameters"`
		} `json:"function"`
	}
	_ = json.Unmarshal(tools, &list) // skips values of other types, such as the schema true
	text := map[[2]string]bool{}
	for _, t := range list {
		for name, p := range t.Function.Parameters.Properties {
			if strings.TrimSpace(string(p.Type)) == `"string"` {
				text[[2]string{t.Function.Name, name}] = true
			}
		}
	}
	return func(tool, parameter string) bool { return text[[2]string{tool, parameter}] }
}
