package lettasim

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// must returns the value of a call that must not fail: must(New(cfg))(t).
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// newServer returns a server, and a function that makes a request that has to succeed.
func newServer(t *testing.T, cfg Config) (*Server, func(method, path, body string) []byte) {
	t.Helper()
	s := must(New(cfg))(t)
	return s, func(method, path, body string) []byte {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("User-Agent", "rollout/test")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s %s = %d %.300s", method, path, w.Code, w.Body)
		}
		return w.Body.Bytes()
	}
}

// TestNothingStays proves that the server's maps are empty after all agents are deleted, except the
// bounded ring of traces.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	s, call := newServer(t, Config{KeptTraces: 10})
	for i := range 60 {
		state := call("POST", "/v1/agents/", fmt.Sprintf(`{"model":"sglang//models/qwen3","metadata":{"rollout":{"task_id":"t","sample_index":%d}}}`, i))
		id := member(state, "id")
		call("POST", "/v1/conversations/?agent_id="+id, "")
		call("POST", "/v1/agents/"+id+"/messages", `{"input":"hello"}`)
		call("DELETE", "/v1/agents/"+id, "")
	}
	for name, n := range map[string]int{
		"agents": len(s.agents), "runs": len(s.runs), "steps": len(s.steps), "systems": len(s.systems), "conversations": len(s.conversations), "answers": len(s.answers),
	} {
		if n != 0 {
			t.Errorf("%d %s left", n, name)
		}
	}
	if len(s.keptTraces) != 10 || len(s.keptOrder) != 10 {
		t.Errorf("%d traces in a ring of %d, want 10", len(s.keptTraces), len(s.keptOrder))
	}
}

func TestFloatText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in            float32
		answer, trace string
	}{
		{-2.9001324946875684e-05, "-0.000029001324946875684", "-2.9001324946875684e-05"},
		{-2.666984926236182e-07, "-2.666984926236182e-07", "-2.666984926236182e-07"},
		{-0.016834063455462456, "-0.016834063455462456", "-0.016834063455462456"},
		{0, "0.0", "0.0"},
		{-1, "-1.0", "-1.0"},
	} {
		if got := string(appendFloat(nil, tt.in, answerFrom)); got != tt.answer {
			t.Errorf("answer of %v = %s, want %s", tt.in, got, tt.answer)
		}
		if got := string(appendFloat(nil, tt.in, traceFrom)); got != tt.trace {
			t.Errorf("trace of %v = %s, want %s", tt.in, got, tt.trace)
		}
	}
}

// TestLatencyDistributions draws many durations and checks the distribution.
func TestLatencyDistributions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		l             Latency
		low, mid, top time.Duration
	}{
		{"constant", Latency{Low: time.Second}, time.Second, time.Second, time.Second},
		{"uniform", Latency{Low: time.Second, High: 3 * time.Second}, time.Second, 2 * time.Second, 3 * time.Second},
		{"lognormal", Latency{Low: time.Second, Sigma: 0.5}, 100 * time.Millisecond, time.Second, 20 * time.Second},
		{"lognormal, cut", Latency{Low: time.Second, High: 2 * time.Second, Sigma: 2}, 0, time.Second, 2 * time.Second},
	} {
		below, n := 0, 4000
		for i := range n {
			d := tt.l.at(draw(1, tt.name, fmt.Sprint(i)))
			if d < tt.low || d > tt.top {
				t.Fatalf("%s: %v outside %v..%v", tt.name, d, tt.low, tt.top)
			}
			if d < tt.mid {
				below++
			}
		}
		if tt.name != "constant" && (below < n*45/100 || below > n*55/100) {
			t.Errorf("%s: %d of %d below the median %v", tt.name, below, n, tt.mid)
		}
	}
}

// TestCapacity proves that sends wait for a place: of sends that arrive together at a server of
// capacity c, the k-th ends after ⌈k/c⌉ times the latency.
func TestCapacity(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, capacity := range []int{0, 1, 3} {
		s, _ := newServer(t, Config{Capacity: capacity})
		for k := 1; k <= 10; k++ {
			want := time.Second
			if capacity > 0 {
				want *= time.Duration((k + capacity - 1) / capacity)
			}
			if got := s.due(start, time.Second).Sub(start); got != want {
				t.Errorf("capacity %d: number %d ends after %v, want %v", capacity, k, got, want)
			}
		}
		if got := s.due(start.Add(time.Hour), time.Second).Sub(start); got != time.Hour+time.Second {
			t.Errorf("capacity %d: an idle server ends after %v", capacity, got)
		}
	}
}

func TestScan(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{`[]`, ``},
		{` [ 1 , "a,]" , {"b":[1,{"c":"}\\\""}]} , null ] `, `1|"a,]"|{"b":[1,{"c":"}\\\""}]}|null`},
		{`["\\","\""]`, `"\\"|"\""`},
	} {
		var got []string
		for _, e := range split([]byte(tt.in)) {
			got = append(got, string(e))
		}
		if strings.Join(got, "|") != tt.want {
			t.Errorf("split(%s) = %s, want %s", tt.in, got, tt.want)
		}
	}
	o, err := parseObject([]byte(`{ "a" : 1 , "b":{"a":"x"},"c":"q\"" }`))
	if err != nil || string(o.append(nil)) != `{"a":1,"b":{"a":"x"},"c":"q\""}` {
		t.Errorf("object = %s, %v", o.append(nil), err)
	}
	if got := string(nanToNull([]byte(`{"a":[NaN,-Infinity,1,Infinity],"b":"NaN"}`))); got != `{"a":[null,null,1,null],"b":"NaN"}` {
		t.Errorf("nanToNull = %s", got)
	}
}
