package prompttest_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/rollout-rl/rollout/collector/prompt/prompttest"
)

// TestShape: a life is as large as a real one, and the same seed gives the same bytes.
func TestShape(t *testing.T) {
	t.Parallel()
	lives := prompttest.Lives(t, 4)
	again, err := prompttest.Qwen3(t).Life("long-01", 1)
	if err != nil || !bytes.Equal(again, lives["long-01"]) {
		t.Errorf("the same seed makes other bytes (%v)", err)
	}
	for name, raw := range lives {
		var l struct {
			Exchanges []struct {
				Response struct{ Body json.RawMessage }
				Runs     []struct{ Messages, Steps, Traces []json.RawMessage }
			}
		}
		var body struct {
			Messages json.RawMessage
			Turns    []struct {
				OutputIDs []int32 `json:"output_ids"`
			}
			Usage struct {
				ContextTokens int `json:"context_tokens"`
			}
		}
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatal(name, err)
		}
		if err := json.Unmarshal(l.Exchanges[0].Response.Body, &body); err != nil {
			t.Fatal(name, err)
		}
		sampled := 0
		for i := range body.Turns {
			sampled += len(body.Turns[i].OutputIDs)
		}
		size, messages := len(l.Exchanges[0].Response.Body), len(body.Messages)
		run := l.Exchanges[0].Runs[0]
		t.Logf("%s: reply %d bytes, messages %d (%.1f %%), %d sampled tokens, context %d; %d stored messages, traces %d…%d bytes", name, size, messages,
			100*float64(messages)/float64(size), sampled, body.Usage.ContextTokens, len(run.Messages), len(run.Traces[0]), len(run.Traces[7]))
		if messages*100 < 18*size || sampled < 7500 || sampled > 9500 || size < 400_000 || size > 600_000 || len(run.Steps) != 8 || len(run.Messages) != 23 {
			t.Errorf("%s has not the shape of a long reply", name)
		}
	}
}
