package lettasim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// TestWeights proves that every call has one version, which its trace and the log agree on. Between
// two equal answers of the page no call has another version.
func TestWeights(t *testing.T) {
	var log bytes.Buffer
	s := start(t, lettasim.Config{InputIDs: true, Weights: lettasim.Weights{Calls: 5, Log: &log}, Script: lettasim.Script{Calls: lettasim.Range{Min: 2, Max: 2}}})
	page := func() string {
		return strings.Trim(field(t, s.do(200, "GET", "/model_info", ""), "weight_version"), `"`)
	}
	if got := page(); got != "1" {
		t.Errorf("the page has %s before the first call, want 1", got)
	}
	for i := range 6 {
		id, _ := s.create("w", i, 1)
		before := page()
		sendTo(s, id, "Add 1 and 2.")
		after := page()
		calls := 0
		for dec := json.NewDecoder(&log); dec.More(); calls++ {
			var line struct {
				StepID  string `json:"step_id"`
				Version int
			}
			if err := dec.Decode(&line); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(line.Version); before == after && got != before {
				t.Errorf("a call of version %s between two answers of %s", got, before)
			}
			trace := s.do(200, "GET", "/v1/steps/"+line.StepID+"/trace", "")
			if want := fmt.Sprintf(`"weight_version":"%d"`, line.Version); !bytes.Contains(trace, []byte(want)) {
				t.Errorf("trace %.600s: want %s", trace, want)
			}
		}
		if calls == 0 {
			t.Error("the log has no call")
		}
	}
	if got := page(); got == "1" {
		t.Error("the weights never changed")
	}
}

func TestParseWeights(t *testing.T) {
	for text, want := range map[string]lettasim.Weights{
		"every=40":                         {Calls: 40},
		"every=2s,lag=-100ms,fall=3,words": {Every: 2 * time.Second, Lag: -100 * time.Millisecond, Fall: 3, Words: true},
		"engines=2,every=1s":               {Every: time.Second, Engines: 2},
	} {
		if got, err := lettasim.ParseWeights(text); err != nil || got != want {
			t.Errorf("ParseWeights(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "every", "every=x", "engines=2", "every=40,lag=1s", "every=-1s", "every=1s,often"} {
		if got, err := lettasim.ParseWeights(text); err == nil {
			t.Errorf("ParseWeights(%q) = %+v, no error", text, got)
		}
	}
}
