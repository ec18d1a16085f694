package main

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A receiver is an OpenTelemetry collector that keeps its data.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []byte
	header http.Header
	path   string
	spans  map[string]*tracepb.Span // by id
	res    map[string]string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{spans: map[string]*tracepb.Span{}, res: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var data tracepb.TracesData
		z, err := gzip.NewReader(req.Body)
		if err == nil {
			b, rerr := io.ReadAll(z)
			err = errors.Join(rerr, proto.Unmarshal(b, &data))
			r.bodies = append(r.bodies, b...)
		}
		if err != nil {
			t.Error(err)
		}
		r.header, r.path = req.Header, req.URL.Path
		for _, rs := range data.GetResourceSpans() {
			for _, a := range rs.GetResource().GetAttributes() {
				r.res[a.GetKey()] = a.GetValue().GetStringValue()
			}
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					r.spans[string(s.GetSpanId())] = s
				}
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// runTraced collects with tracing set in the environment, and returns its messages.
func runTraced(t *testing.T, env map[string]string, args []string) string {
	t.Helper()
	var stderr bytes.Buffer
	if code := run(t.Context(), args, strings.NewReader(""), io.Discard, &stderr, func(name string) string { return env[name] }); code != exit.OK {
		t.Fatalf("exit code %d\n%s", code, stderr.String())
	}
	if strings.Contains(stderr.String(), "canary") {
		t.Errorf("a secret is on stderr:\n%s", stderr.String())
	}
	return stderr.String()
}

func attr(s *tracepb.Span, key string) *commonpb.AnyValue {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue()
		}
	}
	return nil
}

// A run makes spans of every sample, attempt and request. Each sample is one trace that continues
// in the server.
func TestSpans(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Seed: 3, Faults: mustFaults(t, "too-many@one/0/1")})
	parents := map[string]bool{} // traceparent values
	var mu sync.Mutex
	url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.Header.Get("Traceparent"); p != "" {
			mu.Lock()
			parents[p] = true
			mu.Unlock()
		}
		sim.ServeHTTP(w, r)
	}))
	r := newReceiver(t)
	runTraced(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":    r.URL + "/prefix",
		"OTEL_EXPORTER_OTLP_HEADERS":     "authorization=Bearer%20canary-token",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
		"OTEL_RESOURCE_ATTRIBUTES":       "deployment.environment=test%20bed",
	}, []string{
		"collect", "--server", url, "--model", simModel, "--prompts", "turns", "--out", filepath.Join(t.TempDir(), "run"),
		"--tasks", writeFile(t, "tasks.jsonl", []byte(`{"id":"one","prompt":"canary-prompt [rollout:calls=2]"}`+"\n"+`{"id":"two","prompt":"canary-prompt"}`+"\n")),
	})
	if r.path != "/prefix/v1/traces" || r.header.Get("Authorization") != "Bearer canary-token" || r.header.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("%s %v", r.path, r.header)
	}
	if r.res["service.name"] != "rollout" || r.res["service.version"] == "" || r.res["deployment.environment"] != "test bed" {
		t.Errorf("resource %v", r.res)
	}
	if bytes.Contains(r.bodies, []byte("canary-prompt")) {
		t.Error("a prompt is in the spans")
	}
	count := map[string]int{}
	failed := 0
	for _, s := range r.spans {
		count[s.GetName()]++
		parent := r.spans[string(s.GetParentSpanId())]
		want := "rollout.attempt"
		switch s.GetName() {
		case "rollout.sample":
			want = ""
			if attr(s, "rollout.task_id").GetStringValue() == "" || attr(s, "rollout.run_id").GetStringValue() == "" {
				t.Errorf("attributes %v", s.GetAttributes())
			}
		case "rollout.attempt":
			want = "rollout.sample"
			if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
				failed++
				if attr(s, "error.type").GetStringValue() != "rate_limited" {
					t.Errorf("a failed attempt: %v", s.GetAttributes())
				}
			}
		case "invoke_agent":
			if c := attr(s, "http.response.status_code").GetIntValue(); c != 200 && c != 429 {
				t.Errorf("status %d", c)
			}
		}
		if parent.GetName() != want {
			t.Errorf("%s is under %q, want %q", s.GetName(), parent.GetName(), want)
		}
		if parent != nil && !bytes.Equal(parent.GetTraceId(), s.GetTraceId()) {
			t.Errorf("%s is in another trace than %s", s.GetName(), parent.GetName())
		}
	}
	if count["rollout.sample"] != 2 || count["rollout.attempt"] != 3 || failed != 1 || count["invoke_agent"] != 3 || count["create agent"] != 3 {
		t.Errorf("spans %v, %d failed attempts", count, failed)
	}
	// Every traceparent that the server received names a span of ours.
	for p := range parents {
		parts := strings.Split(p, "-")
		found := false
		for id, s := range r.spans {
			found = found || len(parts) == 4 && parts[2] == hex.EncodeToString([]byte(id)) && parts[1] == hex.EncodeToString(s.GetTraceId())
		}
		if !found {
			t.Errorf("traceparent %s names no span", p)
		}
	}
	if len(parents) < 8 {
		t.Errorf("%d requests carried a traceparent", len(parents))
	}
}

// A missing OpenTelemetry collector does not affect the run and is reported once.
func TestLostSpans(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	_, args := collectArgs(t, sim, serveSim(t, sim), 2)
	said := runTraced(t, map[string]string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://user:canary-password@127.0.0.1:1/canary-token",
		"OTEL_EXPORTER_OTLP_TIMEOUT":         "50",
	}, args)
	if strings.Count(said, "spans are lost: ") != 1 {
		t.Error(said)
	}
}
