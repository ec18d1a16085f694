package prompt_test

import (
	"testing"
	"unsafe"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// within reports whether text is part of the memory of whole.
func within(text, whole string) bool {
	if text == "" || whole == "" {
		return false
	}
	at, from := uintptr(unsafe.Pointer(unsafe.StringData(text))), uintptr(unsafe.Pointer(unsafe.StringData(whole)))
	return at >= from && at < from+uintptr(len(whole))
}

// checkOwned checks that the strings that rows take from a call do not point into an answer of the
// server. Otherwise a row that waits to be written keeps the answer in memory.
func checkOwned(t *testing.T, name string, reply *prompt.Answered, calls []tokenize.Call) {
	t.Helper()
	var bodies []letta.RawJSON
	for _, s := range reply.Evidence.Sends {
		bodies = append(bodies, s.Response.JSON)
		if s.RunID == "" {
			continue
		}
		steps, err := reply.Evidence.Run(s.RunID).Steps(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range steps {
			bodies = append(bodies, steps[i].JSON)
			trace, err := reply.Evidence.Trace(t.Context(), steps[i].ID)
			if err != nil {
				t.Fatal(err)
			}
			if trace == nil {
				continue
			}
			answer, err := trace.Answer()
			if err != nil {
				continue
			}
			bodies = append(bodies, letta.RawJSON(answer.Finish))
		}
	}
	for i := range calls {
		for _, body := range bodies {
			if within(calls[i].StepID, string(body)) || within(calls[i].FinishReason, string(body)) {
				t.Fatalf("%s: call %d keeps an answer: step %q, finish reason %q", name, i, calls[i].StepID, calls[i].FinishReason)
			}
		}
	}
}
