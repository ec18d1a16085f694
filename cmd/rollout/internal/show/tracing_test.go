package show

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

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
		{"exporter", "OTEL_TRACES_EXPORTER", "zipkin", "must be otlp or none"},
		{"protocol", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "must be http/protobuf"},
		{"endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT", "canary:4317", "OTEL_EXPORTER_OTLP_ENDPOINT: must be a URL"},
		{"headers", "OTEL_EXPORTER_OTLP_HEADERS", "canary", "must be name=value"},
		{"timeout", "OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "number of milliseconds"},
		{"compression", "OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "must be gzip or none"},
		{"certificate", "OTEL_EXPORTER_OTLP_CERTIFICATE", notPEM, "contains no PEM certificate"},
		{"no certificate", "OTEL_EXPORTER_OTLP_CERTIFICATE", filepath.Join(t.TempDir(), "none"), "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
			env[tc.key] = tc.value
			_, err := NewTracing(func(name string) string { return env[name] }, nil)
			if err == nil || exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("error %v, want one about %q", err, tc.want)
			}
		})
	}
}
