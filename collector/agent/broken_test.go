package agent_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// TestBrokenRun checks that only a failure of the infrastructure replaces the stop reason error.
func TestBrokenRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, of string
		// failure is metadata.error of the run; kind and message are of its last step. All JSON.
		failure, kind, message string
		class                  collector.Class // ClassNone: the stop reason is enough
	}{
		{"nothing is said", "single", `null`, `null`, `null`, collector.ClassNone},
		{"the database of a step", "single", `""`, `"TimeoutError"`, `""`, collector.ClassTimeoutTotal},
		{"the database, by its module", "single", `null`, `"asyncio.exceptions.TimeoutError"`, `""`, collector.ClassTimeoutTotal},
		{"the database of the run", "single", `"TimeoutError()"`, `null`, `null`, collector.ClassTimeoutTotal},
		{"the database of the run, as an object", "single", `{"type":"internal_error","message":"An unknown error occurred.","detail":"TimeoutError()"}`, `null`, `null`, collector.ClassTimeoutTotal},
		{"too many connections", "single", `null`, `"asyncpg.exceptions.TooManyConnectionsError"`, `"sorry, too many clients already"`, collector.ClassUnavailable},
		{"a lost connection", "single", `"asyncpg.exceptions.ConnectionDoesNotExistError"`, `null`, `null`, collector.ClassUnavailable},
		{"a tool that timed out", "tool", `"mul failed: TimeoutError: no answer within 5 s"`, `null`, `null`, collector.ClassNone},
		{"a tool that names it", "tool", `"Error executing function mul: TimeoutError()"`, `"ValueError"`, `"TimeoutError()"`, collector.ClassNone},
		{"a tool that names it alone", "tool", `null`, `null`, `"TimeoutError"`, collector.ClassNone},
		{"the result of a tool", "tool", `null`, `null`, `null`, collector.ClassNone},
		{"another error", "single", `"list index out of range"`, `"IndexError"`, `"list index out of range"`, collector.ClassNone},
		{"no text", "single", `7`, `7`, `{}`, collector.ClassNone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, c := lettatest.NewReplay(t, tt.of)
			x := &p.Exchanges[len(p.Exchanges)-1]
			x.Response.Body = replaced(t, x.Response.Body, `"stop_reason":"end_turn"`, `"stop_reason":"error"`)
			run := &x.Runs[len(x.Runs)-1]
			run.Run = replaced(t, run.Run, `"run_type":"send_message"`, `"run_type":"send_message","error":`+tt.failure)
			last := &run.Steps[len(run.Steps)-1]
			*last = replaced(t, *last, `"error_type":null,"error_data":null`, `"error_type":`+tt.kind+`,"error_data":{"message":`+tt.message+`}`)
			if tt.name == "the result of a tool" {
				for i := range run.Messages {
					run.Messages[i] = bytes.ReplaceAll(run.Messages[i], []byte(`"tool_return": "`), []byte(`"tool_return": "TimeoutError() `))
				}
			}
			play(t, p, c, model, attemptOf(messagesOf(t, p.Recording)), func(r *collector.Reply, err error) {
				if tt.class == collector.ClassNone {
					if err != nil || len(r.Sends) == 0 || r.Sends[len(r.Sends)-1].StopReason != "error" {
						t.Errorf("Run = %v, want the answer with its stop reason", err)
					}
					return
				}
				if got := collector.Classify(err); got != tt.class || !got.Retryable() || !strings.Contains(err.Error(), "the server run failed: ") {
					t.Errorf("Run = %v, class %v, want %v", err, got, tt.class)
				}
			})
		})
	}
}

// replaced replaces old, which must occur, in a JSON text without its white space.
func replaced(t *testing.T, text json.RawMessage, old, with string) json.RawMessage {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), old) {
		t.Fatalf("no %s in %s", old, b.String())
	}
	return json.RawMessage(strings.Replace(b.String(), old, with, 1))
}
