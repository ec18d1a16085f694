package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/sink"
)

// A repeater is a proxy between server and tap that repeats calls: each failed one, and some
// successful ones.
type repeater struct {
	to       string
	mu       sync.Mutex
	answered [][]int32
	hidden   []hiddenCall
}

type hiddenCall struct {
	prompt []int32
	kind   string
}

func (p *repeater) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var asked struct {
		InputIDs []int32 `json:"input_ids"`
	}
	if err != nil || json.Unmarshal(body, &asked) != nil {
		http.Error(w, "no request", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	heads, twice := 0, false
	for i, before := range p.answered {
		if len(before) < len(asked.InputIDs) && slices.Equal(before, asked.InputIDs[:len(before)]) {
			heads++
			twice = twice || slices.ContainsFunc(p.answered[:i], func(o []int32) bool { return slices.Equal(o, before) })
		}
	}
	p.mu.Unlock()
	ask := func(harm string) (status int, answer []byte) {
		q, err := http.NewRequestWithContext(r.Context(), http.MethodPost, p.to+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			return 0, nil
		}
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("X-Harm", harm)
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			return 0, nil
		}
		defer res.Body.Close()
		if answer, err = io.ReadAll(res.Body); err != nil {
			return 0, nil
		}
		return res.StatusCode, answer
	}
	// The prompt of a first call does not identify its sample. The same holds for calls after a
	// first call that was made twice, like the trial call's.
	if heads > 0 && !twice {
		for i, kind := range []string{"retry", "failed", "cut"} {
			if call := heads + 1; call%(i+2) == 0 { // the place in its sample, independent of other samples
				status, _ := ask(kind)
				if status == http.StatusOK != (kind == "retry") {
					http.Error(w, fmt.Sprintf("%s: %d", kind, status), http.StatusTeapot)
					return
				}
				p.mu.Lock()
				p.hidden = append(p.hidden, hiddenCall{asked.InputIDs, kind})
				p.mu.Unlock()
			}
		}
	}
	status, answer := ask("")
	p.mu.Lock()
	p.answered = append(p.answered, asked.InputIDs)
	p.mu.Unlock()
	w.WriteHeader(status)
	_, _ = w.Write(answer) // the server notices a failed write
}

// Calls of the engine that no answer shows are counted by kind with their sample, in the log, by
// inspect and in the summary.
func TestUnshown(t *testing.T) {
	t.Parallel()
	engine, err := enginesim.New(enginesim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Harm") {
		case "failed":
			http.Error(w, "out of memory", http.StatusInternalServerError)
		case "cut":
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "{")
		default:
			engine.ServeHTTP(w, r)
		}
	}))
	defer e.Close()
	tap := startTap(t, "--engine", e.URL+"/v1")
	between := &repeater{to: tap.url}
	b := httptest.NewServer(between)
	defer b.Close()
	cfg := lettasim.Config{InputIDs: true, BareTraces: true, Seed: 1, Engine: b.URL}
	cfg.Script.Calls.Min, cfg.Script.Calls.Max = 3, 5
	sim := newSim(t, cfg)
	s := &tappedServer{tap: tap, url: serveSim(t, sim), tasks: writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 12}))}
	dir, said := s.collect(t, 0, "--tap", tap.spool, "--prompts", "tap", "--max-in-flight", "4")

	want, total := map[string]map[string]int{}, map[string]int{}
	dataset := readDataset(t, dir)
	for _, hidden := range between.hidden {
		total[hidden.kind]++
		for _, rows := range dataset.rows {
			for _, r := range rows {
				if len(r.InputIDs) > len(hidden.prompt) && slices.Equal(r.InputIDs[:len(hidden.prompt)], hidden.prompt) {
					if want[r.SampleKey] == nil {
						want[r.SampleKey] = map[string]int{}
					}
					want[r.SampleKey][hidden.kind]++
				}
			}
		}
	}
	if len(want) < 10 || len(total) != 3 {
		t.Fatalf("%d samples, %v", len(want), total)
	}
	log, err := sink.ReadLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[string]int{}
	for _, c := range log.Commits {
		for _, sample := range c.Samples {
			for word, n := range sample.Unshown.Each() {
				if n > 0 {
					if got[sample.Key] == nil {
						got[sample.Key] = map[string]int{}
					}
					got[sample.Key][word] = n
				}
			}
		}
	}
	if !maps.EqualFunc(got, want, maps.Equal) {
		t.Errorf("the log counts\n%v, want\n%v", got, want)
	}
	for key, counts := range want {
		parts := []string{}
		for _, kind := range []string{"retry", "failed", "cut"} {
			if n := counts[kind]; n > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", kind, n))
			}
		}
		text := strings.Join(parts, ", ")
		if r := mustRun(t, 0, "inspect", dir, "--key", key); !strings.Contains(r.stderr, "the tap saw calls that no answer of the sample shows: "+text+"\n") {
			t.Errorf("inspect --key %s lacks %q:\n%s", key, text, r.stderr)
		}
		if r := mustRun(t, 0, "inspect", dir, "--key", key, "--row", "0"); !strings.Contains(r.stdout, "unshown      "+text+": ") {
			t.Errorf("inspect --key %s --row 0 lacks %q:\n%s", key, text, r.stdout)
		}
		js, _ := json.Marshal(counts) // a map of numbers can always be encoded
		var line struct{ Unshown map[string]int }
		r := mustRun(t, 0, "inspect", dir, "--key", key, "--json")
		if err := json.NewDecoder(strings.NewReader(r.stdout)).Decode(&line); err != nil || !maps.Equal(line.Unshown, counts) {
			t.Errorf("inspect --key %s --json: %v, want %s", key, line.Unshown, js)
		}
	}
	text := fmt.Sprintf("by samples, but in no answer: cut %d, failed %d, retry %d", total["cut"], total["failed"], total["retry"])
	if !strings.Contains(said.stderr, text) {
		t.Errorf("the summary lacks %q:\n%s", text, said.stderr)
	}
}
