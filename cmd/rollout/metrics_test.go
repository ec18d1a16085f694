package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// What is scraped is what the collector counts, and no id becomes a label.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := newMetrics("v1", func() collector.Stats {
		return collector.Stats{
			Planned: 10, Committed: 4, Failed: 2, Remaining: 4, Attempts: 8, Retries: 2, Sampled: 100, Trained: 90, Rows: 5,
			ByClass:   map[collector.Class]int{collector.ClassNoTurns: 2},
			Endpoints: []collector.EndpointStats{{Name: "http://a", InFlight: 3, Max: 24, Down: true}},
			Oldest:    &collector.InFlight{TaskID: "secret-task", Started: time.Now().Add(-time.Minute)},
		}
	})
	m.attemptFinished(collector.Result{Duration: 3 * time.Second})
	m.committed(sink.Commit{CreatedAt: time.Unix(1000, 0), Shards: []sink.Shard{{Bytes: 77}}})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer m.serve(t.Context(), l)()
	resp, err := http.Get("http://" + l.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"rollout_samples_planned 10",
		`rollout_samples_total{outcome="committed"} 4`,
		`rollout_samples_total{outcome="failed"} 2`,
		"rollout_samples_remaining 4",
		`rollout_attempts_total{class="retry"} 2`,
		`rollout_failures_total{class="no_turns"} 2`,
		`rollout_samples_in_flight{endpoint="http://a"} 3`,
		`rollout_breaker_open{endpoint="http://a"} 1`,
		`rollout_tokens_total{kind="trainable"} 90`,
		`rollout_attempt_duration_seconds_count{outcome="finished"} 1`,
		`rollout_shard_bytes_total{kind="data"} 77`,
		"rollout_last_commit_timestamp_seconds 1000",
		`rollout_build_info{version="v1"} 1`,
	} {
		if !strings.Contains(string(body), line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	if strings.Contains(string(body), "secret-task") {
		t.Error("an id is a label")
	}
}
