package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/collector/limit/engine"
)

const sglang = `# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 31.0
# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{dp_rank="0",model_name="m"} 3.0
sglang:num_queue_reqs{dp_rank="1",model_name="m"} 4.0
# HELP sglang:token_usage The token usage.
# TYPE sglang:token_usage gauge
sglang:token_usage{dp_rank="0",model_name="m"} 0.28
sglang:token_usage{dp_rank="1",model_name="m"} 0.71
# HELP sglang:num_retracted_requests_total Total number of retracted requests.
# TYPE sglang:num_retracted_requests_total counter
sglang:num_retracted_requests_total{dp_rank="0",model_name="m"} 5.0
sglang:num_retracted_requests_total{dp_rank="1",model_name="m"} 1.0
# HELP sglang:num_retracted_reqs The number of retracted requests.
# TYPE sglang:num_retracted_reqs gauge
sglang:num_retracted_reqs{dp_rank="0",model_name="m"} 9.0
# HELP sglang:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE sglang:time_to_first_token_seconds histogram
sglang:time_to_first_token_seconds_sum{model_name="m"} 2.3518979474117756e+06
sglang:time_to_first_token_seconds_bucket{le="0.001",model_name="m"} 0.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 11008.0
sglang:time_to_first_token_seconds_count{model_name="m"} 11008.0
`

const vllm = `# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.42
# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 12.0
# HELP vllm:num_preemptions_created Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_created gauge
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e+09
`

// page serves text(n) for the n-th request.
func page(t *testing.T, text func(n int) string) string {
	t.Helper()
	var n atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		fmt.Fprint(w, text(int(n.Add(1))))
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/metrics"
}

func always(text string) func(int) string { return func(int) string { return text } }

func newPoller(t *testing.T, every time.Duration, urls ...string) *engine.Poller {
	t.Helper()
	p, err := engine.New(engine.Config{URLs: urls, Every: every})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLook(t *testing.T) {
	t.Parallel()
	s, v := page(t, always(sglang)), page(t, always(vllm))
	tests := []struct {
		name string
		urls []string
		want limit.Engine
	}{
		{"sglang", []string{s}, limit.Engine{KVUsage: 0.71, Waiting: 7, Preemptions: 6}},
		{"vllm", []string{v}, limit.Engine{KVUsage: 0.42, Waiting: 2, Preemptions: 12}},
		{"two", []string{v, s}, limit.Engine{KVUsage: 0.71, Waiting: 9, Preemptions: 18}},
		{"older vllm", []string{page(t, always(`vllm:gpu_cache_usage_perc{model_name="m"} 0.9`+"\n"))}, limit.Engine{KVUsage: 0.9, Waiting: -1, Preemptions: -1}},
		{"not a number", []string{page(t, always("sglang:token_usage NaN\nsglang:num_queue_reqs 1\n"))}, limit.Engine{KVUsage: -1, Waiting: 1, Preemptions: -1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, err := newPoller(t, 0, tt.urls...).Look(t.Context()); err != nil || got != tt.want {
				t.Errorf("Look = %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

// The gauge of older SGLang versions is summed up, so that the controller sees it rise.
func TestRetractionsOfTheMomentAddUp(t *testing.T) {
	t.Parallel()
	now := []string{"0", "2", "0", "3"}
	url := page(t, func(n int) string { return "sglang:num_retracted_reqs " + now[n-1] + "\n" })
	p := newPoller(t, 0, url)
	for i, want := range []float64{0, 2, 2, 5} {
		if got, err := p.Look(t.Context()); err != nil || got.Preemptions != want {
			t.Errorf("look %d: %+v, %v, want %v", i, got, err, want)
		}
	}
}

func TestLookThatFails(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(gone.Close)
	stop := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(stop) })
	closed := httptest.NewServer(nil)
	closed.Close()
	good := page(t, always(vllm))
	tests := []struct{ name, url, want string }{
		{"status", gone.URL + "/metrics", "status 404"},
		{"no answer", slow.URL, "deadline exceeded"},
		{"no server", closed.URL, "refused"},
		{"something else", page(t, always("<html>hello</html>")), "the page is not in the Prometheus text format"},
		{"nothing that is known", page(t, always("go_goroutines 12\n")), "--enable-metrics"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			secret := strings.Replace(tt.url, "http://", "http://me:canary@", 1) + "?key=canary"
			e, err := newPoller(t, 200*time.Millisecond, good, secret).Look(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) || e != (limit.Engine{}) {
				t.Fatalf("Look = %+v, %v, want %q: one page that fails spoils the look", e, err, tt.want)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, urls := range [][]string{nil, {""}, {"localhost:30000"}, {"ftp://a/metrics"}, {"http://"}, {"http://me:canary@ x"}} {
		if _, err := engine.New(engine.Config{URLs: urls}); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("New(%q) = %v, want an error without a possible secret", urls, err)
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	url := page(t, func(n int) string {
		if n == 2 {
			return "?"
		}
		return vllm
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	var log []string
	p := newPoller(t, 50*time.Millisecond, url)
	seen := func(e limit.Engine) {
		log = append(log, fmt.Sprint(e.KVUsage))
		if len(log) == 3 {
			cancel(errors.New("seen enough"))
		}
	}
	if err := p.Run(ctx, seen, func(error) { log = append(log, "failed") }); err != nil {
		t.Errorf("Run = %v", err)
	}
	if got := strings.Join(log, " "); got != "0.42 failed 0.42" {
		t.Errorf("looks: %s", got)
	}
}
