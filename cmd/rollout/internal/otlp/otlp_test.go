package otlp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/otlp"
)

// TestUploadTriesAgain checks that a transient rejection is retried, that a permanent one is not,
// and that no upload fails the caller.
func TestUploadTriesAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		answers  []int // the last one repeats
		requests int32
		lost     bool
	}{
		{"taken", []int{200}, 1, false},
		{"busy once", []int{503, 200}, 2, false},
		{"too many once", []int{429, 202}, 2, false},
		{"refused", []int{400}, 1, true},
		{"redirected", []int{307}, 1, true},
		{"wrong password", []int{401}, 1, true},
		{"busy for ever", []int{502}, 2, true}, // within a second
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := int(requests.Add(1))
				b, err := io.ReadAll(r.Body)
				var data tracepb.TracesData
				if err = errors.Join(err, proto.Unmarshal(b, &data)); err != nil || len(data.GetResourceSpans()) != 1 {
					t.Errorf("request %d: %d spans, %v", n, len(data.GetResourceSpans()), err)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tc.answers[min(n, len(tc.answers))-1])
			}))
			defer server.Close()
			env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_EXPORTER_OTLP_TIMEOUT": "1200"}
			var lost error
			c, err := otlp.FromEnv(func(name string) string { return env[name] }, func(err error) { lost = err })
			if err != nil {
				t.Fatal(err)
			}
			if err := c.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{SchemaUrl: "x"}}); err != nil {
				t.Errorf("the caller got %v", err)
			}
			if err := c.UploadTraces(t.Context(), nil); err != nil { // no request
				t.Error(err)
			}
			if (lost != nil) != tc.lost || requests.Load() != tc.requests {
				t.Errorf("%d requests, want %d; lost: %v", requests.Load(), tc.requests, lost)
			}
			if err := c.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
