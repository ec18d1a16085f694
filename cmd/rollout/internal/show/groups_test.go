package show

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/sink"
)

// TestGroups checks that a run of whole groups shows them in every form, that their counts add up,
// and that other runs show no groups.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := collector.Stats{
		Planned: 40, Committed: 16, Filtered: 8, Failed: 4, Skipped: 2, Remaining: 10, Earlier: collector.Earlier{Committed: 4, Filtered: 2},
		Pace: &pace.Stats{Version: 3, Held: pace.HeldAhead, Begun: 9, Informative: 4, Filtered: 2, Failed: 1, Until: 9, Ahead: 3, Lags: [pace.LagMost + 1]int{2, 1, pace.LagMost: 1}},
	}
	sum := Summarize(s, sink.Stats{}, prompt.Stats{}, &Tally{}, time.Second)
	if sum.Planned != sum.Committed+sum.Filtered+sum.Failed+sum.Skipped+sum.Remaining {
		t.Errorf("the counts do not add up: %+v", sum)
	}
	text := sum.text()
	for _, want := range []string{
		"\n  filtered         8   have keep=false\n",
		"\n  groups     7 whole of 9 started: 4 informative of the 9 wanted, 2 filtered, 1 failed; 3 ahead of the reader\n",
		"\n  lag        0: 2 groups, 1: 1 group, 32 or more: 1 group, in policy versions\n",
		"22.0 samples/s", // of this invocation: 28 ended, 6 before
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary lacks %q:\n%s", want, text)
		}
	}
	v := View{Stats: s}
	status := strings.Join(v.Status(nil), "\n")
	for _, want := range []string{"40 planned = 16 committed + 8 filtered + 4 failed + 2 skipped + 10 remaining", "3 ahead of the reader; the next one: waiting for acknowledgement"} {
		if !strings.Contains(status, want) {
			t.Errorf("the status lacks %q:\n%s", want, status)
		}
	}
	if line := v.line(); strings.Count(line, ", 7 groups whole, 3 ahead, 2 filtered, version 3, waiting for acknowledgement") != 1 {
		t.Errorf("the line is %q", line)
	}
	if n := v.json()["earlier"]; n != 6 {
		t.Errorf("the event has %v samples of earlier processes, want 6", n)
	}
	if n := done(s); n != 30 || doneNow(s) != 24 {
		t.Errorf("done %d, %d of them now, want 30 and 24", n, doneNow(s))
	}
	event, err := json.Marshal(v.json()["groups"])
	if want := `{"begun":9,"whole":7,"informative":4,"filtered":2,"failed":1,"until":9,"ahead":3,"version":3,"lag":[2,1,` + strings.Repeat("0,", 30) + `1]}`; err != nil || string(event) != want {
		t.Errorf("the event has %s, want %s", event, want)
	}
	var log bytes.Buffer
	(&Log{Logger: slog.New(slog.NewJSONHandler(&log, nil))}).Status(s)
	if !strings.Contains(log.String(), `"groups_whole":7,`) || !strings.Contains(log.String(), `"lag":[2,1,0,`) {
		t.Errorf("the log is %s", log.String())
	}

	s.Pace, s.Filtered, s.Earlier.Filtered = nil, 0, 0
	v, log = View{Stats: s}, bytes.Buffer{}
	(&Log{Logger: slog.New(slog.NewJSONHandler(&log, nil))}).Status(s)
	all := Summarize(s, sink.Stats{}, prompt.Stats{}, &Tally{}, time.Second).text() + strings.Join(v.Status(nil), "\n") + log.String()
	for _, word := range []string{"filtered", "groups", "lag"} {
		if strings.Contains(all, word) {
			t.Errorf("a run of samples mentions %s:\n%s", word, all)
		}
	}
	if groups := v.json()["groups"]; groups != nil {
		t.Errorf("a run of samples has groups: %v", groups)
	}
}
