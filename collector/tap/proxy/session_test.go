package proxy_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// A sessionRig is a rig with a store of sessions.
type sessionRig struct {
	*rig
	store *store.Store
}

func newSessionRig(tb testing.TB, cfg proxy.Config, engines ...http.Handler) *sessionRig {
	tb.Helper()
	return sessionRigOf(tb, store.Config{Dir: tb.TempDir()}, cfg, engines...)
}

func sessionRigOf(tb testing.TB, files store.Config, cfg proxy.Config, engines ...http.Handler) *sessionRig {
	tb.Helper()
	s, err := store.Open(files)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	cfg.Sessions = s
	return &sessionRig{newRig(tb, cfg, engines...), s}
}

// begin begins a session and returns its key.
func (r *sessionRig) begin(tb testing.TB) session.Key {
	tb.Helper()
	status, text := r.post(tb, "/r", `{"task":{"id":"t1","prompt":"Say hello."}}`)
	var began struct{ Key, ID, Path string }
	if err := json.Unmarshal([]byte(text), &began); err != nil || status != http.StatusCreated || began.Path != "/r/"+began.Key {
		tb.Fatalf("POST /r: %d %s", status, text)
	}
	return session.Key(began.Key)
}

// record seals a session and returns its record.
func (r *sessionRig) record(tb testing.TB, key session.Key) *session.Record {
	tb.Helper()
	if status, text := r.post(tb, "/r/"+string(key)+"/end", `{"reward":1}`); status != http.StatusOK {
		tb.Fatalf("end: %d %s", status, text)
	}
	rec, err := r.store.Read(key.ID())
	if err != nil {
		tb.Fatal(err)
	}
	return rec
}

func (r *sessionRig) call(tb testing.TB, key session.Key, body string) (int, string) {
	tb.Helper()
	return r.post(tb, "/r/"+string(key)+"/v1/chat/completions", body)
}

// TestSessionIDs proves that the recorded ids are the engine's, for streams and whole answers, in all
// forms.
func TestSessionIDs(t *testing.T) {
	t.Parallel()
	for _, f := range forms {
		engine := f.engine(t)
		r := newSessionRig(t, proxy.Config{}, engine)
		if err := r.proxy.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		trials := len(engine.Calls())
		key := r.begin(t)
		for _, script := range []string{"single", "tool", "think-parallel", "unicode", "quoted", "large", "length", "empty"} {
			for _, stream := range []bool{false, true} {
				status, text := r.call(t, key, chatBody(script, stream, ""))
				if status != http.StatusOK || strings.HasPrefix(text, "data:") != stream || strings.Contains(text, "_ids") || strings.Contains(text, "sglext") {
					t.Fatalf("%s, %s, stream %v: %d %s", f.name, script, stream, status, text)
				}
			}
		}
		if got := r.proxy.Mode(); got != f.mode {
			t.Errorf("%s: the ids come by %s, want %s", f.name, got, f.mode)
		}
		rec, truth := r.record(t, key), engine.Calls()[trials:]
		if len(rec.Calls) != len(truth) {
			t.Fatalf("%s: %d calls were recorded, the engine had %d", f.name, len(rec.Calls), len(truth))
		}
		for i, got := range rec.Calls {
			want := truth[i]
			if got.Unread != "" || !slices.Equal(got.Prompt, want.InputIDs) || !slices.Equal(got.Output, want.OutputIDs) {
				t.Errorf("%s, call %d: recorded %q %v %v, the engine had %v %v", f.name, i, got.Unread, got.Prompt, got.Output, want.InputIDs, want.OutputIDs)
			}
			if !slices.Equal(got.Logprobs, want.Logprobs) || !got.Delivered || got.Cut || got.Status != 200 || got.Retry != -1 || got.Number != i+1 {
				t.Errorf("%s, call %d: recorded %+v, the engine had %+v", f.name, i, got, want)
			}
			if len(got.Messages) != 2 || got.Tools < 0 || string(rec.Texts[got.Messages[0]]) != `{"role":"system","content":"You are terse."}` {
				t.Errorf("%s, call %d: messages %v, tools %d", f.name, i, got.Messages, got.Tools)
			}
		}
	}
}
