package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// hostileText must never reach a terminal or a page unescaped: a title, colors in C0 and C1,
// right-to-left text, separators, a line that looks like our own, and invisible characters.
const hostileText = "\x1b]0;owned\a\x1b[31m\u009b1m\u202eexe\u2066x\u200f\u061c\u2028\u2029\r\nrollout: forged\tx\x00\x7f\ufeff\U000e0041<marquee>"

// assertTame fails the test if shown text contains unescaped hostile text.
func assertTame(t *testing.T, where, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "rollout: forged") {
			t.Errorf("%s: a line that looks like ours: %q", where, line)
			return
		}
		for i, r := range line {
			bad := !unicode.IsGraphic(r) && r != '\t' && r != '\u200c' && r != '\u200d'
			if _, size := utf8.DecodeRuneInString(line[i:]); bad || r == utf8.RuneError && size == 1 {
				t.Errorf("%s: %U in %.300q", where, r, line)
				return
			}
		}
		if len(line) > 100_000 {
			t.Errorf("%s: a line of %d bytes", where, len(line))
		}
	}
}

// assertTameJSON also requires lines of JSON.
func assertTameJSON(t *testing.T, where, text string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	for {
		var v any
		if err := dec.Decode(&v); err == io.EOF {
			break
		} else if err != nil {
			t.Errorf("%s: %v in %.300q", where, err, text)
			return
		}
	}
	assertTame(t, where, text)
}

// A spoiler is a proxy that adds hostile text to every string under one key of every answer, or
// answers with an error.
type spoiler struct {
	next http.Handler
	key  string // "": none; "*error": refuses every POST with a hostile body

	mu   sync.Mutex
	seen map[string]bool // keys with a string value
}

func (s *spoiler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.key == "*error" && r.Method == http.MethodPost {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(map[string]any{"detail": hostileText + strings.Repeat("x", 100_000)})
		return
	}
	rec := httptest.NewRecorder()
	s.next.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) == nil {
		var b bytes.Buffer
		_ = json.NewEncoder(&b).Encode(s.spoil("", v))
		body = b.Bytes()
	}
	maps.Copy(w.Header(), rec.Header())
	w.Header().Del("Content-Length")
	w.WriteHeader(rec.Code)
	_, _ = w.Write(body)
}

func (s *spoiler) spoil(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = s.spoil(k, e)
		}
	case []any:
		for i, e := range v {
			v[i] = s.spoil(key, e)
		}
	case string:
		s.mu.Lock()
		s.seen[key] = true
		s.mu.Unlock()
		if key == s.key {
			return v + hostileText
		}
	}
	return v
}

// If a server fills any field of its answers with control characters, every verb shows them as text
// and its JSON stays valid. So do the logs and the page of the run.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 2}))
	quick := writeFile(t, "quick.yaml", []byte("run: {retries: 0, attempt_timeout: 10s}\n"))
	visit := func(key string) (seen []string) {
		s := &spoiler{next: sim.HTTPServer().Handler, key: key, seen: map[string]bool{}}
		url := serve(t, &http.Server{Handler: s, ReadHeaderTimeout: time.Minute})
		run := filepath.Join(t.TempDir(), "run")
		server := []string{"--server", url}
		agent := append(server, "--model", simModel, "-c", quick)
		for _, verb := range [][]string{
			append([]string{"doctor"}, agent...),
			append([]string{"collect", "--tasks", tasks, "--out", run, "--keep-agents", "--fail-on-error", "2"}, agent...),
			{"inspect", run},
			{"inspect", run, "--row", "0"},
			{"inspect", run, "--failures", "--whole"},
			{"failures", run, "--all"},
			{"report", run},
			{"report", run, "--html", "-"},
			{"verify", run},
			{"clean", run, "--dry-run"},
		} {
			r := invoke(t.Context(), verb...)
			assertTame(t, key+": "+verb[0], r.stdout+r.stderr)
		}
		var row struct {
			AgentID string `json:"agent_id"`
		}
		_ = json.Unmarshal([]byte(invoke(t.Context(), "inspect", run, "--row", "0", "--json").stdout), &row)
		list := []string{"steps", "list", "--server", url, "--agent", row.AgentID}
		r := invoke(t.Context(), list...)
		assertTame(t, key+": steps list", r.stdout+r.stderr)
		r = invoke(t.Context(), append(list, "--json")...)
		assertTameJSON(t, key+": steps list --json", r.stdout)
		var step struct{ ID string }
		_ = json.NewDecoder(strings.NewReader(r.stdout)).Decode(&step)
		if key == "-none-" && step.ID == "" {
			t.Fatalf("no step: %s%s", r.stdout, r.stderr)
		}
		for _, verb := range []string{"get", "metrics", "trace", "messages"} {
			r := invoke(t.Context(), "steps", verb, "--server", url, "--", step.ID)
			assertTame(t, key+": steps "+verb, r.stdout+r.stderr)
			r = invoke(t.Context(), "steps", verb, "--json", "--server", url, "--", step.ID)
			assertTameJSON(t, key+": steps "+verb+" --json", r.stdout)
		}
		for _, verb := range [][]string{
			append([]string{"doctor", "--json"}, agent...),
			append([]string{"collect", "--resume", "--retry-failed", "--json", "--tasks", tasks, "--out", run, "--keep-agents", "--fail-on-error", "2"}, agent...),
			{"inspect", run, "--json"},
			{"inspect", run, "--row", "0", "--json"},
			{"failures", run, "--json", "--all"},
			{"report", run, "--json"},
			{"clean", run, "--json"},
		} {
			r := invoke(t.Context(), verb...)
			assertTameJSON(t, key+": "+verb[0]+" --json", r.stdout)
			assertTame(t, key+": "+verb[0]+" --json", r.stderr)
		}
		if _, err := os.Stat(run); err == nil {
			assertTameFiles(t, key, run)
		} else if key == "-none-" {
			t.Fatal(err)
		}
		return slices.Sorted(maps.Keys(s.seen))
	}
	keys := append(visit("-none-"), "*error")
	if len(keys) < 50 || !slices.Contains(keys, "version") || !slices.Contains(keys, "content") {
		t.Fatalf("%d keys %q: the test looks at too little", len(keys), keys)
	}
	if testing.Short() {
		keys = []string{"version", "detail", "message", "name", "content", "stop_reason", "status", "*error"}
	}
	var all sync.WaitGroup
	places := make(chan struct{}, 8)
	for _, key := range keys {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			visit(key)
		})
	}
	all.Wait()
}

func assertTameFiles(t *testing.T, where, run string) {
	t.Helper()
	for name, text := range treeOf(t, run) {
		switch {
		case strings.HasPrefix(name, "logs/"):
			assertTameJSON(t, where+": "+name, text)
		case name == runfolder.ReportPage:
			assertTame(t, where+": "+name, text)
			if strings.Contains(text, "<marquee>") {
				t.Errorf("%s: markup of a server in the page", where)
			}
		}
	}
}
