package agent

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// TestLastSign checks that changes and offsets of either clock do not affect a run's silence.
func TestLastSign(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		ahead time.Duration
		age   time.Duration // of the run by the server's clock
		want  time.Duration
	}{
		{"clocks agree", 0, 5 * time.Minute, 5 * time.Minute},
		{"the server is a year ahead", 365 * 24 * time.Hour, 5 * time.Minute, 5 * time.Minute},
		{"the server is a year behind", -365 * 24 * time.Hour, 5 * time.Minute, 5 * time.Minute},
		{"its clock went back since", 0, -time.Hour, 0},
	} {
		client := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Date"] = []string{time.Now().Add(test.ahead).UTC().Format(http.TimeFormat)}
			if r.URL.Path == "/v1/health/" {
				_, _ = io.WriteString(w, `{}`)
				return
			}
			_, _ = io.WriteString(w, `[]`)
		})
		if _, err := client.Health(t.Context()); err != nil { // learns the server's clock, to the second
			t.Fatal(err)
		}
		began := letta.Time(time.Now().Add(test.ahead - test.age - time.Second).UTC().Format(time.RFC3339Nano))
		last, err := (&agent{client: client}).lastSign(t.Context(), &letta.Run{ID: "run-1", CreatedAt: began})
		if err != nil {
			t.Fatal(err)
		}
		if silent := time.Since(last); silent < test.want || silent > test.want+time.Minute {
			t.Errorf("%s: silent for %v, want %v", test.name, silent, test.want)
		}
		if !strings.Contains(last.String(), " m=") {
			t.Errorf("%s: %v has no monotonic part", test.name, last)
		}
	}
}
