package prompt

import (
	"encoding/json"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
)

// visibleReturn is what the model saw of a tool turn: its text without the results
// that the client made or that stand for a refusal. content is the turn's text, a
// packaged JSON object per result with one newline between two of them; returns
// are the results in the order of these objects, which need not be that of the
// calls. A text that is not packaged so is left whole.
func visibleReturn(content string, returns []letta.ToolReturn, of decisions) string {
	hide := false
	for i := range returns {
		hide = hide || of.hidden(returns[i].ToolCallID)
	}
	if !hide {
		return content
	}
	objects, ok := splitObjects(content)
	if !ok || len(objects) != len(returns) {
		return content
	}
	seen := objects[:0]
	for i, o := range objects {
		if !of.hidden(returns[i].ToolCallID) {
			seen = append(seen, o)
		}
	}
	return strings.Join(seen, "\n")
}

// splitObjects cuts s into JSON objects with exactly one newline between two of
// them, each kept as its text.
func splitObjects(s string) ([]string, bool) {
	var objects []string
	for {
		if !strings.HasPrefix(s, "{") {
			return nil, false
		}
		dec := json.NewDecoder(strings.NewReader(s))
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, false
		}
		end := int(dec.InputOffset())
		objects = append(objects, s[:end])
		if s = s[end:]; s == "" {
			return objects, true
		}
		if s[0] != '\n' {
			return nil, false
		}
		s = s[1:]
	}
}
