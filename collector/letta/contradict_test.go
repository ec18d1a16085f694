package letta_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// TestContradictions: a memory of the server that is incomplete, or contradicts
// itself, is not taken for an answer.
func TestContradictions(t *testing.T) {
	t.Parallel()
	replace := func(pattern, with string) func([]byte) []byte {
		p := regexp.MustCompile(pattern)
		return func(b []byte) []byte {
			at := p.FindIndex(b)
			if at == nil {
				return nil
			}
			return append(append(bytes.Clone(b[:at[0]]), p.ReplaceAll(b[at[0]:at[1]], []byte(with))...), b[at[1]:]...)
		}
	}
	for _, test := range []struct {
		name, path string
		change     func([]byte) []byte
		says       string // empty: no contradiction
	}{
		{"nothing", "/trace", replace(`"cached_tokens":0`, `"cached_tokens":1`), ""},
		{"a token less", "/trace", replace(`"output_ids":\[\d+,`, `"output_ids":[`), "tokens, the step counted"},
		{"no token is a number", "/trace", replace(`"output_ids":\[\d+,`, `"output_ids":["a",`), "expected a token id"},
		{"a prompt token less", "/trace", replace(`"input_ids":\[\d+,`, `"input_ids":[`), "which the step did not count"},
		{"no tokens", "/trace", replace(`"output_ids":\[[\d,]*\]`, `"output_ids":null`), "holds no tokens"},
		{"no trace", "/trace", func([]byte) []byte { return []byte("null") }, "has no trace"},
		{"no result of a tool", "/trace", replace(`"role":"tool","tool_call_id":"call_`, `"role":"tool","tool_call_id":"other_`), "does not show the result of call"},
		{"a step counts more", "/steps", replace(`"completion_tokens":(\d+)`, `"completion_tokens":1$1`), "tokens, the step counted"},
		{"a failed step", "/steps", replace(`"status":"success"`, `"status":"failed"`), "is failed"},
		{"a step is missing", "/steps", func(b []byte) []byte {
			return append([]byte("["), b[bytes.Index(b, []byte("},{"))+2:]...)
		}, "and does not list it"},
		{"no steps", "/steps", func([]byte) []byte { return []byte("[]") }, "and does not list it"},
		{"other words were sent", "/messages", replace(`"content":"Add`, `"content":"Sub`), "was asked for something else"},
		{"nothing was sent", "/messages", func([]byte) []byte { return []byte("[]") }, "was asked for something else"},
		{"no text of the assistant", "/messages", replace(`"message_type":"assistant_message"`, `"message_type":"other"`), "the stored messages have none"},
		{"a failed run", "", replace(`"status":"completed"`, `"status":"failed"`), ""}, // its stop reason says more
		{"no stop reason", "", replace(`"stop_reason":"end_turn"`, `"stop_reason":null`), "names no stop reason"},
		{"cancelled", "", replace(`"stop_reason":"end_turn"`, `"stop_reason":"cancelled"`), "cancelled"},
		{"an unknown end", "", replace(`"stop_reason":"end_turn"`, `"stop_reason":"bored"`), "bored"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, web := simulated(t, lettasim.Config{Script: lettasim.Script{Calls: lettasim.Range{Min: 3, Max: 3}}}, nil)
			whole := web.Config.Handler
			changed := 0
			run := regexp.MustCompile(`^/v1/runs/run-[^/]*` + test.path + `$`)
			web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				aimed := run.MatchString(r.URL.Path) || test.path == "/trace" && strings.HasSuffix(r.URL.Path, test.path)
				if r.Method != http.MethodGet || !aimed {
					whole.ServeHTTP(w, r)
					return
				}
				rec := httptest.NewRecorder()
				whole.ServeHTTP(rec, r)
				body := test.change(rec.Body.Bytes())
				if body == nil {
					body = rec.Body.Bytes() // not this one
				} else {
					changed++
				}
				_, _ = w.Write(body)
			})
			b := backendAt(t, web.URL, letta.AgentConfig{})
			orphan(t, b, 1, scripted(1).Task.Messages...)
			g, err := b.Reattach(t.Context(), scripted(1), collector.OpenAttempt{N: 1})
			if err != nil {
				t.Fatal(err)
			}
			reply, err := g.Run(t.Context())
			switch {
			case changed == 0:
				t.Error("nothing was changed")
			case test.says == "":
				if err != nil || len(reply.Sends) != 2 {
					t.Errorf("%v", err)
				}
			case !errors.Is(err, collector.ErrGone) || !contains(err, test.says):
				t.Errorf("%v, want gone: %s", err, test.says)
			}
			closeAgent(t, g)
		})
	}
}

// TestNoServer: a request that never left this machine is not looked for.
func TestNoServer(t *testing.T) {
	t.Parallel()
	_, web := simulated(t, lettasim.Config{}, nil)
	b := backendAt(t, web.URL, letta.AgentConfig{})
	g, err := b.Open(t.Context(), scripted(1))
	if err != nil {
		t.Fatal(err)
	}
	b.Client().CloseIdle()
	web.Close()
	began := time.Now()
	if _, err = g.Run(t.Context()); collector.Classify(err) != collector.ClassConnection {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("gave up after %v", took)
	}
}
