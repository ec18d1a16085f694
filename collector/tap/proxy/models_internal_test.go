package proxy

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestModelsSeldom proves how often the list of models is read, and what a call gets if the engine does
// not check the name of the model.
func TestModelsSeldom(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var models []string // nil: GET /v1/models fails
	var reads int
	var got []string
	p, key := newTrialRig(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method != http.MethodGet:
			body, _ := io.ReadAll(r.Body)
			_, model, _ := strings.Cut(string(body), `"model":"`)
			model, _, _ = strings.Cut(model, `"`)
			got = append(got, model)
			w.WriteHeader(http.StatusTeapot)
		case models == nil:
			reads++
			w.WriteHeader(http.StatusInternalServerError)
		default:
			reads++
			_, _ = fmt.Fprintf(w, `{"data":[{"id":"%s"}]}`, strings.Join(models, `"},{"id":"`))
		}
	})
	p.limits.ListTime = time.Hour
	trial := &p.balance.engines[0].trial
	trial.able.Store(&ability{models: []string{"m"}, listed: time.Now()})
	for _, c := range []struct {
		name   string
		models []string
		later  bool // the last read was ListTime ago
		asked  []string
		want   []string // the models that the engine gets
		status int
		reads  int
	}{
		{"the tap's name", []string{"m"}, true, []string{"policy", "policy"}, []string{"m", "m"}, 418, 0},
		{"other names", []string{"m"}, false, []string{"gpt", "claude", "gpt", "claude", "gpt"}, []string{"m", "m", "m", "m", "m"}, 418, 2},
		{"other names later", []string{"m"}, true, []string{"gpt", "claude", "gpt", "claude"}, []string{"m", "m", "m", "m"}, 418, 1},
		{"no list", nil, true, []string{"gpt", "gpt", "new", "new"}, []string{"m", "m", "m", "m"}, 418, 2},
		{"loaded", []string{"m", "a"}, false, []string{"a", "a"}, []string{"a", "a"}, 418, 1},
		{"loaded after the first call with the name", []string{"m", "a", "gpt"}, true, []string{"gpt", "gpt", "a"}, []string{"gpt", "gpt", "a"}, 418, 1},
		{"unknown whether it is still loaded", nil, true, []string{"a", "a"}, nil, 502, 2},
		{"unloaded", []string{"m"}, true, []string{"a", "m:a", "policy:a"}, nil, 404, 3},
		{"loaded again", []string{"m", "a"}, false, []string{"a"}, []string{"a"}, 418, 1},
	} {
		mu.Lock()
		models, got, reads = c.models, nil, 0
		mu.Unlock()
		if c.later {
			old := *trial.able.Load()
			old.listed = old.listed.Add(-p.limits.ListTime)
			trial.able.Store(&old)
			trial.lists.began = trial.lists.began.Add(-p.limits.ListTime)
		}
		for _, asked := range c.asked {
			if w := chat(t, p, key, `{"model":"`+asked+`","messages":[]}`); w.Code != c.status {
				t.Errorf("%s: %s: %d %s", c.name, asked, w.Code, w.Body)
			}
		}
		mu.Lock()
		if !slices.Equal(got, c.want) || reads != c.reads {
			t.Errorf("%s: the engine gets %v, want %v; the list was read %d times, want %d", c.name, got, c.want, reads, c.reads)
		}
		mu.Unlock()
	}
}

// TestModelsTogether proves that calls that need the list at the same time share a read.
func TestModelsTogether(t *testing.T) {
	t.Parallel()
	reading, release := make(chan struct{}, 10), make(chan struct{})
	p, key := newTrialRig(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		reading <- struct{}{}
		<-release
		_, _ = io.WriteString(w, `{"data":[{"id":"m"},{"id":"a"}]}`)
	})
	p.limits.ListTime = time.Hour
	p.balance.engines[0].trial.able.Store(&ability{models: []string{"m", "a"}})
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if w := chat(t, p, key, `{"model":"a","messages":[]}`); w.Code != http.StatusTeapot {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	<-reading
	close(release)
	calls.Wait()
	if n := len(reading); n > 0 {
		t.Errorf("%d further reads", n)
	}
}
