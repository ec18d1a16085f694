package enginesim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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

// shape is the names and kinds of an object's members in their order, nested ones too.
func shape(t *testing.T, raw []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	var out strings.Builder
	depth, lists := 0, 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			return out.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token {
		case json.Delim('['):
			lists++
		case json.Delim(']'):
			lists--
		case json.Delim('{'):
			depth++
		case json.Delim('}'):
			depth--
		}
		if name, ok := token.(string); ok && lists == 0 {
			if name == "text" || depth > 1 || name == "meta_info" || name == "output_ids" {
				fmt.Fprintf(&out, "%d:%s ", depth, strings.Map(func(r rune) rune {
					if r >= '0' && r <= '9' {
						return -1
					}
					return r
				}, keep(name)))
			}
		}
	}
}

// keep drops what is a value and not a name: texts and ids are of this call.
func keep(name string) string {
	if len(name) == 32 || strings.ContainsAny(name, " <{\n") {
		return ""
	}
	return name
}

func newServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}
