package show

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestLog checks that the log is one JSON object per line with the messages and fields that the
// report reads, without secrets and without text of a server or a model.
func TestLog(t *testing.T) {
	t.Parallel()
	const secret, prose = `canary "secret"`, "canary prose"
	dir := t.TempDir()
	l, err := OpenLog(dir, runfolder.LogName(3), 0o600, []string{secret, "a", ""})
	must(t, err)
	a := collector.Attempt{Key: "k-0", N: 2, Task: &collector.Task{ID: prose, Messages: []string{prose}}}
	server := fmt.Errorf("%w: %s", collector.ErrServer, prose)
	out := termsafe.NewWriter(io.Discard)
	o := &Observer{Display: NewDisplay(out, out, func(string) string { return "" }, false, false), Log: l, Metrics: NewMetrics("v1")}
	events := o.Events(func(collector.Attempt, error) {})
	events.RetryWaiting(a, fmt.Errorf("%w: reset", collector.ErrConnection), 1500*time.Millisecond)
	events.RetryWaiting(a, fmt.Errorf("send: %w", &letta.APIError{Op: "send", Status: 503, Code: prose, Detail: prose, Err: collector.ErrUnavailable}), time.Second)
	events.LimitChanged("http://a", 32, 25, "rate_limited")
	events.EndpointDown("http://a", fmt.Errorf("%w: dial %s refused", collector.ErrConnection, secret))
	events.EndpointDown("http://a", nil)
	events.EndpointLost("http://a", server)
	events.CloseFailed(a, "http://a", server)
	events.Reattached(a, "http://a", server)
	events.SampleFinished(&tokenize.Sample{Key: "k-0", Attempt: 2, Failures: []tokenize.Failure{{Class: "agent_error", Stage: "run", Error: prose, Text: prose}}})()
	o.committed(sink.Commit{Seq: 4, Samples: make([]sink.CommittedSample, 2), Shards: []sink.Shard{
		{Kind: sink.KindData, Rows: 3, Tokens: sink.Tokens{Total: 50}}, {Kind: sink.KindFailures, Rows: 1, Tokens: sink.Tokens{Total: 7}},
	}})
	l.Status(collector.Stats{InFlight: 1, Committed: 2, Failed: 3, Skipped: 4, Remaining: 5, Yield: collector.Yield{Sampled: 6, Trained: 7}})
	l.Info("anything", "error", errors.New("with "+secret))
	l.Ended("finished", exit.With(exit.Failures, server))
	must(t, l.Close())
	b, err := os.ReadFile(filepath.Join(dir, "logs", "collect-0003.jsonl"))
	must(t, err)
	text := string(b)
	if quoted, _ := json.Marshal(secret); strings.Contains(text, strings.Trim(string(quoted), `"`)) || strings.Contains(text, "canary") {
		t.Errorf("the log holds what it must not:\n%s", text)
	}
	want := []string{
		`{"msg":"retry","sample_key":"k-0","attempt":2,"delay_s":1.5,"class":"connection","error":"collector: connection failed: reset"}`,
		`{"msg":"retry","sample_key":"k-0","attempt":2,"delay_s":1,"class":"unavailable","error":"send: 503 Service Unavailable"}`,
		`{"msg":"limit changed","endpoint":"http://a","from":32,"to":25,"reason":"rate_limited"}`,
		`{"msg":"endpoint down","endpoint":"http://a","class":"connection","error":"collector: connection failed: dial *** refused"}`,
		`{"msg":"endpoint up","endpoint":"http://a"}`,
		`{"msg":"endpoint lost","endpoint":"http://a","class":"server_error"}`,
		`{"msg":"agent not removed","sample_key":"k-0","attempt":2,"endpoint":"http://a","class":"server_error"}`,
		`{"msg":"not reattached","sample_key":"k-0","attempt":2,"endpoint":"http://a","class":"server_error"}`,
		`{"msg":"sample failed","sample_key":"k-0","attempt":2,"class":"agent_error","stage":"run","reason":"","agent_id":""}`,
		`{"msg":"commit","seq":4,"samples":2,"rows":3,"tokens":50}`,
		`{"msg":"status","in_flight":1,"limit":0,"committed":2,"failed":3,"skipped":4,"remaining":5,"accepted":0,"attempts":0,"retries":0,"sampled_tokens":6,"trained_tokens":7}`,
		`{"msg":"anything","error":"with ***"}`,
		`{"msg":"end","outcome":"finished","exit":3,"class":"server_error"}`,
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), text)
	}
	for i, line := range lines {
		var head struct {
			Time  time.Time
			Level string
		}
		if err := json.Unmarshal([]byte(line), &head); err != nil || head.Time.IsZero() || head.Level == "" {
			t.Errorf("line %d: %v: %s", i, err, line)
		}
		if got := "{" + line[strings.Index(line, `"msg"`):]; got != want[i] {
			t.Errorf("line %d:\n%s\nwant:\n%s", i, got, want[i])
		}
	}
}

// TestLogEnd checks that the last line of a log is an error only if the run had one.
func TestLogEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, outcome string
		err           error
		want          string
	}{
		{"finished", "finished", nil, `"level":"INFO","msg":"end","outcome":"finished","exit":0}`},
		{"interrupted", "interrupted", exit.With(exit.Interrupted, errors.New("interrupted: 3 of 4 samples remain")), `"level":"WARN","msg":"end","outcome":"interrupted","exit":130}`},
		{"stopped", "interrupted", exit.With(exit.Interrupted, signals.ErrInterrupted), `"level":"WARN","msg":"end","outcome":"interrupted","exit":130}`},
		{"some failed", "finished", exit.With(exit.Failures, errors.New("1 of 4 samples failed (allowed: 2)")), `"level":"WARN","msg":"end","outcome":"finished","exit":3}`},
		{"and nothing is said", "finished", exit.SilentError(exit.Failures), `"level":"WARN","msg":"end","outcome":"finished","exit":3}`},
		{"too many failed", "finished", exit.With(exit.Tolerance, errors.New("3 of 4 samples failed (allowed: 2)")), `"level":"ERROR","msg":"end","outcome":"finished","exit":4}`},
		{"no server", "stopped", fmt.Errorf("%w: refused", collector.ErrConnection), `"level":"ERROR","msg":"end","outcome":"stopped","exit":5,"class":"connection","error":"collector: connection failed: refused"}`},
		{"a fault of ours", "stopped", errors.New("canary"), `"level":"ERROR","msg":"end","outcome":"stopped","exit":1,"class":"internal"}`},
	} {
		dir := t.TempDir()
		l, err := OpenLog(dir, runfolder.LogName(1), 0o600, nil)
		must(t, err)
		l.Ended(tt.outcome, tt.err)
		must(t, l.Close())
		b, err := os.ReadFile(filepath.Join(dir, runfolder.LogName(1)))
		if err != nil || !strings.HasSuffix(strings.TrimSpace(string(b)), tt.want) {
			t.Errorf("%s: %v\n%swant …%s", tt.name, err, b, tt.want)
		}
	}
}

// TestOnlyWhatTheSinkAcceptsIsCounted checks that a sample that the sink rejects counts as the
// failure that replaces it, and that a sample cut while it waited for the sink does not count.
func TestOnlyWhatTheSinkAcceptsIsCounted(t *testing.T) {
	t.Parallel()
	o := &Observer{Log: DiscardLog(), Metrics: NewMetrics("v1")}
	finished := o.Events(func(collector.Attempt, error) {}).SampleFinished
	good := func() *tokenize.Sample {
		return &tokenize.Sample{Key: "k", GroupID: "g", GroupSize: 1, Rows: []tokenize.Row{{InputIDs: make([]int32, 5)}}}
	}
	finished(good()) // rejected
	failure := &tokenize.Sample{Key: "k", GroupID: "g", GroupSize: 1, Failures: []tokenize.Failure{{Class: "internal", Stage: "append", Call: -1}}}
	accepted := finished(failure)
	if n := len(o.Tally.Failures()); n != 0 {
		t.Errorf("%d classes of failures before the sink accepted any", n)
	}
	accepted()
	if r := o.Tally.result(); r.Tokens != 0 || r.MostRows != 0 || len(r.Grades) != 0 || o.Tally.Failures()["internal"] != 1 {
		t.Errorf("after one refused sample: %+v, failed: %v", r, o.Tally.Failures())
	}

	kept := good()
	accepted = finished(kept)
	kept.Rows[0] = tokenize.Row{} // the sink owns the rows and can change them
	accepted()
	if r := o.Tally.result(); r.Tokens != 5 || r.MostRows != 1 {
		t.Errorf("after one accepted sample: %+v", r)
	}
}

// TestNoSpansWithoutEnvironment checks that without the environment no hook, header, goroutine or
// allocation exists.
func TestNoSpansWithoutEnvironment(t *testing.T) {
	for _, env := range []map[string]string{
		{},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
		{"OTEL_SERVICE_NAME": "x"},
	} {
		before := runtime.NumGoroutine()
		tr, err := NewTracing(func(name string) string { return env[name] }, nil)
		if err != nil || tr != nil {
			t.Fatalf("%v: %v, %v", env, tr, err)
		}
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%v: %d goroutines more", env, after-before)
		}
		var cfg letta.ClientConfig
		tr.Watch("http://a", &cfg)
		if e := tr.Events(collector.Events{}); e.SampleSpan != nil || e.AttemptSpan != nil || cfg.Observe != nil || cfg.Inject != nil {
			t.Errorf("%v: hooks are there", env)
		}
		if n := testing.AllocsPerRun(100, func() { tr.Events(collector.Events{}); tr.Stop(context.Background()) }); n != 0 {
			t.Errorf("%v: %v allocations", env, n)
		}
	}
}

// TestSpanSettings checks that a bad environment variable is a usage error that shows no secret.
func TestSpanSettings(t *testing.T) {
	t.Parallel()
	notPEM := fileOf(t, "ca.pem", "canary-key")
	for _, tc := range []struct {
		name, key, value, want string
	}{
		{"exporter", "OTEL_TRACES_EXPORTER", "zipkin", "want otlp or none"},
		{"protocol", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "want http/protobuf"},
		{"endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT", "canary:4317", "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"},
		{"headers", "OTEL_EXPORTER_OTLP_HEADERS", "canary", "want name=value"},
		{"timeout", "OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "want a number of milliseconds"},
		{"compression", "OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "want gzip or none"},
		{"certificate", "OTEL_EXPORTER_OTLP_CERTIFICATE", notPEM, "contains no PEM certificate"},
		{"no certificate", "OTEL_EXPORTER_OTLP_CERTIFICATE", filepath.Join(t.TempDir(), "none"), "no such file"},
	} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
		env[tc.key] = tc.value
		_, err := NewTracing(func(name string) string { return env[name] }, nil)
		if err == nil || exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: error %v, want one about %q", tc.name, err, tc.want)
		}
	}
}
