package enginesim_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// A recordedCall is a recorded call of /generate, with its place since the user's last message.
type recordedCall struct {
	inputIDs []int32
	response json.RawMessage
	step     int
}

func recorded(t *testing.T) map[string][]recordedCall {
	t.Helper()
	all := map[string][]recordedCall{}
	for _, name := range lettatest.Names(t) {
		k := 0
		for _, x := range lettatest.Read(t, name).Exchanges {
			var body struct {
				Messages []struct{ Type string }
			}
			_ = json.Unmarshal(x.Request.Body, &body)
			if m := body.Messages; len(m) == 0 || m[0].Type == "" || m[0].Type == "message" {
				k = 0
			}
			for _, c := range x.ModelCalls {
				if c.Path == "/generate" {
					all[name] = append(all[name], recordedCall{c.InputIDs, c.Response, k})
					k++
				}
			}
		}
	}
	return all
}

var memberName = regexp.MustCompile(`"(\w+)":`)

// memberNames returns the names of an object's members in their order, nested ones too.
func memberNames(object []byte) string {
	return fmt.Sprint(memberName.FindAllString(string(object), -1))
}
