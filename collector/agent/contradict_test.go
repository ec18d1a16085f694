package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// alter lets change edit the body of every answer of the server.
func (l *line) alter(change func(r *http.Request, body []byte) []byte) {
	l.handle(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		l.ServeHTTP(rec, r)
		w.WriteHeader(rec.Code)
		_, _ = w.Write(change(r, rec.Body.Bytes()))
	})
}

// TestContradictions checks that a record that is incomplete or contradicts itself is rejected.
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
	var traces atomic.Int32
	for _, test := range []struct {
		name, path string
		change     func([]byte) []byte
		says       string // empty: no contradiction
	}{
		{"nothing", "/trace", replace(`"cached_tokens":0`, `"cached_tokens":1`), ""},
		{"later by a second", "/messages", func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("2026-01-05T10:00:00"), []byte("2026-01-05T10:00:01"))
		}, ""},
		{"a token less", "/trace", replace(`"output_ids":\[\d+,`, `"output_ids":[`), "output tokens, but the step reports"},
		{"no token is a number", "/trace", replace(`"output_ids":\[\d+,`, `"output_ids":["a",`), "expected a token id"},
		{"a prompt token less", "/trace", replace(`"input_ids":\[\d+,`, `"input_ids":[`), "but the step reports a different count"},
		{"no tokens", "/trace", replace(`"output_ids":\[[\d,]*\]`, `"output_ids":null`), "has no token ids"},
		{"no trace", "/trace", func([]byte) []byte { return []byte("null") }, "has no trace"},
		{"no trace of a later call", "/trace", func([]byte) []byte {
			if traces.Add(1) == 1 {
				return nil
			}
			return []byte("null")
		}, "has no trace"},
		{"no result of a tool", "/trace", replace(`"role":"tool","tool_call_id":"call_`, `"role":"tool","tool_call_id":"other_`), "lacks the result of call"},
		{"a step counts more", "/steps", replace(`"completion_tokens":(\d+)`, `"completion_tokens":1$1`), "output tokens, but the step reports"},
		{"a step counts nothing", "/steps", replace(`"completion_tokens":\d+`, `"completion_tokens":null`), "has no completion token count"},
		{"a failed step", "/steps", replace(`"status":"success"`, `"status":"failed"`), "has status failed"},
		{"a step is missing", "/steps", func(b []byte) []byte {
			return append([]byte("["), b[bytes.Index(b, []byte("},{"))+2:]...)
		}, "but does not list the step"},
		{"no steps", "/steps", func([]byte) []byte { return []byte("[]") }, "but does not list the step"},
		{"other words were sent", "/messages", replace(`"content":"Add`, `"content":"Sub`), "is not message 1 of the task"},
		{"nothing was sent", "/messages", func([]byte) []byte { return []byte("[]") }, "is not message 1 of the task"},
		{"no text of the assistant", "/messages", replace(`"message_type":"assistant_message"`, `"message_type":"other"`), "the stored messages have none"},
		{"a failed run", "", replace(`"status":"completed"`, `"status":"failed"`), ""}, // its stop reason takes precedence
		{"no stop reason", "", replace(`"stop_reason":"end_turn"`, `"stop_reason":null`), "no stop reason"},
		{"cancelled", "", replace(`"stop_reason":"end_turn"`, `"stop_reason":"cancelled"`), "cancelled"},
		{"an unknown end", "", replace(`"stop_reason":"end_turn"`, `"stop_reason":"bored"`), "bored"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := lettasim.Config{Script: lettasim.Script{Calls: lettasim.Range{Min: 3, Max: 3}}}
			l := simulated(t, cfg, nil)
			var changed atomic.Int32 // traces are read concurrently
			run := regexp.MustCompile(`^/v1/runs/run-[^/]*` + test.path + `$`)
			l.alter(func(r *http.Request, body []byte) []byte {
				if aimed := run.MatchString(r.URL.Path) || test.path == "/trace" && strings.HasSuffix(r.URL.Path, test.path); r.Method != http.MethodGet || !aimed {
					return body
				}
				if with := test.change(body); with != nil {
					changed.Add(1)
					return with
				}
				return body // not this one
			})
			b := l.backend(t, agent.Config{})
			orphan(t, b, 1, scripted(1).Task.Messages...)
			reply, err := takenOver(t, b, scripted(1), collector.OpenAttempt{N: 1})
			switch {
			case changed.Load() == 0:
				t.Error("nothing was changed")
			case test.says == "":
				if err != nil {
					t.Fatal(err)
				}
				for i, send := range undisturbed(t, cfg, scripted(1)).Sends {
					sameTurns(t, reply.Sends[i], send)
				}
			default:
				ends(t, err, collector.ClassLost, test.says)
			}
		})
	}
}

// TestLastToolText checks that nothing is sent after a tool's text whose time is not exact.
func TestLastToolText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stop string
		sent int // messages sent by the process that died
		gone bool
	}{{"max_steps", 1, false}, {"tool_rule", 1, true}, {"tool_rule", 2, true}} {
		t.Run(fmt.Sprint(test.stop, test.sent), func(t *testing.T) {
			t.Parallel()
			l := simulated(t, lettasim.Config{Script: lettasim.Script{Calls: lettasim.Range{Min: 3, Max: 3}}}, nil)
			l.alter(func(_ *http.Request, body []byte) []byte {
				return bytes.ReplaceAll(body, []byte(`"stop_reason":"max_steps"`), []byte(`"stop_reason":"`+test.stop+`"`))
			})
			b := l.backend(t, agent.Config{MaxSteps: 2})
			orphan(t, b, 1, scripted(1).Task.Messages[:test.sent]...)
			sends := l.sim.Stats().Sends
			reply, err := takenOver(t, b, scripted(1), collector.OpenAttempt{N: 1})
			if errors.Is(err, collector.ErrGone) != test.gone || len(reply.Sends) != 1 || len(reply.Sends[0].Turns) != 4 || l.sim.Stats().Sends != sends {
				t.Errorf("%d sends in the reply, %v", len(reply.Sends), err)
			}
		})
	}
}

// TestEarlierSystemText checks that a takeover uses the system text before the agent changed it.
func TestEarlierSystemText(t *testing.T) {
	t.Parallel()
	l := simulated(t, lettasim.Config{}, nil)
	before, after := new(keeper), new(keeper)
	cfg := agent.Config{SystemText: true, Prompter: before}
	g := opened(t, l.backend(t, cfg), scripted(1))
	prompted(t, g)
	var changed atomic.Bool
	l.alter(func(r *http.Request, body []byte) []byte {
		if !strings.HasPrefix(r.URL.Path, "/v1/messages/") {
			return body
		}
		changed.Store(true)
		return bytes.ReplaceAll(body, []byte("careful"), []byte("useless"))
	})
	cfg.Prompter = after
	again := reattached(t, l.backend(t, cfg), scripted(1), collector.OpenAttempt{N: 1, AgentID: g.ID()})
	prompted(t, again)
	got, want := after.SystemText, before.SystemText
	if got != want || want == "" || !changed.Load() {
		t.Errorf("system text %q, want %q", got, want)
	}
	closeAgent(t, again)
}

// prompted runs the agent and requests its prompts.
func prompted(t *testing.T, g collector.Agent) {
	t.Helper()
	reply, err := g.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = g.Prompts(t.Context(), reply)
}

// TestForeignAgents checks that agents of other samples are neither used nor deleted.
func TestForeignAgents(t *testing.T) {
	t.Parallel()
	l := simulated(t, lettasim.Config{}, nil)
	l.handle(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		q.Del("match_all_tags")
		r.URL.RawQuery = q.Encode()
		l.ServeHTTP(w, r)
	})
	b := l.backend(t, agent.Config{})
	g := opened(t, b, scripted(2))
	_, err := b.Reattach(t.Context(), scripted(1), collector.OpenAttempt{N: 1})
	ends(t, err, collector.ClassLost, "") // the only agent is of another sample
	l.alive(t, 1)
	closeAgent(t, g)
}

// TestRepeatedSend checks that no run counts if a proxy repeated the send.
func TestRepeatedSend(t *testing.T) {
	t.Parallel()
	l := simulated(t, lettasim.Config{}, func(l *line, n int64, w http.ResponseWriter, r *http.Request) {
		if n != 2 {
			l.sim.ServeHTTP(w, r)
			return
		}
		body := mustRead(r)
		for range 2 {
			l.sim.ServeHTTP(severed{}, twice(r, body))
		}
		panic(http.ErrAbortHandler)
	})
	reply, err := rollout(t, l.backend(t, agent.Config{}), scripted(1))
	ends(t, err, collector.ClassConnection, "more server runs (3) than sends (2)")
	if len(reply.Sends) != 1 {
		t.Errorf("%d sends in the reply", len(reply.Sends))
	}
}

// TestDeletedMeanwhile checks that an agent deleted during its takeover is gone, not rejected.
func TestDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		sent   int
		before string // path part of the request before which it is deleted
	}{
		{"before its system text is read", 1, "/v1/messages/"},
		{"before the first send", 0, "/messages"},
		{"before its messages are read", 1, "/messages"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := simulated(t, lettasim.Config{}, nil)
			b := l.backend(t, agent.Config{SystemText: test.before == "/v1/messages/"})
			id := orphan(t, b, 1, scripted(1).Task.Messages[:test.sent]...)
			l.handle(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, test.before) {
					l.ServeHTTP(severed{}, httptest.NewRequest(http.MethodDelete, "/v1/agents/"+id, nil))
				}
				l.ServeHTTP(w, r)
			})
			g, err := b.Reattach(t.Context(), scripted(1), collector.OpenAttempt{N: 1, AgentID: id})
			if err == nil {
				_, err = ran(t, g)
			}
			ends(t, err, collector.ClassLost, "")
		})
	}
}

// TestNoServer checks that a request that never left this machine is not looked up.
func TestNoServer(t *testing.T) {
	t.Parallel()
	l := simulated(t, lettasim.Config{}, nil)
	b := l.backend(t, agent.Config{})
	g := opened(t, b, scripted(1))
	b.Client().CloseIdle()
	l.web.Close()
	began := time.Now()
	_, err := g.Run(t.Context())
	ends(t, err, collector.ClassConnection, "")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("gave up after %v", took)
	}
}
