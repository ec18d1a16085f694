package prompt

import (
	"encoding/json"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
)

// visibleReturn returns the text of a tool turn as the model saw it. It removes the results that
// the client returned or that represent a denial. The parameter content contains one JSON object
// per result, with one newline between objects. The parameter returns contains the results in the
// order of these objects, which can differ from the order of the calls. If the content has a
// different format, it is returned unchanged.
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

// splitObjects splits s into its JSON objects. It returns false if s does not consist of JSON
// objects separated by exactly one newline.
func splitObjects(s string) ([]string, bool) {
	var objects []string
	dec := json.NewDecoder(strings.NewReader(s))
	for from := 0; ; {
		var raw json.RawMessage
		if !strings.HasPrefix(s[from:], "{") || dec.Decode(&raw) != nil {
			return nil, false
		}
		end := int(dec.InputOffset())
		objects = append(objects, s[from:end])
		switch {
		case end == len(s):
			return objects, true
		case s[end] != '\n':
			return nil, false
		}
		from = end + 1
	}
}
