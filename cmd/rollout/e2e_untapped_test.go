package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize"
)

// A splicer is a proxy in front of an engine, like a tap with continuity. It marks the prompts of
// some calls as spliced.
type splicer struct {
	engine http.Handler
	mu     sync.Mutex
	calls  int
	// spliced has the prompts and outputs of the marked calls.
	spliced map[string]bool
}

func (s *splicer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	s.engine.ServeHTTP(answer, r)
	var asked struct {
		IDs json.RawMessage `json:"input_ids"`
	}
	var of struct {
		IDs json.RawMessage `json:"output_ids"`
	}
	n := 0
	if json.Unmarshal(body, &asked) == nil && json.Unmarshal(answer.Body.Bytes(), &of) == nil && of.IDs != nil {
		s.mu.Lock()
		if s.calls++; s.calls%3 == 0 { // the trial call is the first
			n = 2
			s.spliced[compact(asked.IDs)+compact(of.IDs)] = true
		}
		s.mu.Unlock()
	}
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	w.WriteHeader(answer.Code)
	_, _ = io.WriteString(w, strings.Replace(answer.Body.String(), `"meta_info":{`, fmt.Sprintf(`"meta_info":{"rollout":{"continuity":true,"spliced":%d},`, n), 1))
}

func compact(ids json.RawMessage) string {
	var b bytes.Buffer
	_ = json.Compact(&b, ids)
	return b.String()
}

// A collection that does not read its tap, from a server that sends its own rendered prompts, has
// no row with a spliced call. The trial call or the first trace that is read reveals the tap, and
// the summary has the remedy.
func TestContinuityUntapped(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"trial": nil, "no trial": {"--preflight", "connect"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			untapped(t, args...)
		})
	}
}

func untapped(t *testing.T, args ...string) {
	t.Helper()
	engine, err := enginesim.New(enginesim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &splicer{engine: engine, spliced: map[string]bool{}}
	e := httptest.NewServer(s)
	t.Cleanup(e.Close)
	cfg := lettasim.Config{InputIDs: true, Seed: 1, Engine: e.URL}
	cfg.Script.Calls.Min, cfg.Script.Calls.Max = 1, 4
	sim := newSim(t, cfg)
	server := &tappedServer{engine: engine, sim: sim, url: serveSim(t, sim), tasks: writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 24}))}
	dir, r := server.collect(t, exit.Failures, append(args, "--samples", "1", "--fail-on-error", "100%")...)
	got := readDataset(t, dir)
	rows, lost := 0, 0
	for id, all := range got.rows {
		for _, row := range all {
			rows++
			for i, role := range row.TurnRoles {
				if tokenize.Role(role) != tokenize.RoleAssistant {
					continue
				}
				prompt, _ := json.Marshal(row.InputIDs[:row.TurnOffsets[i]])
				ids, _ := json.Marshal(row.InputIDs[row.TurnOffsets[i]:row.TurnOffsets[i+1]])
				if s.spliced[string(prompt)+string(ids)] {
					t.Errorf("%v: a row has a call whose prompt was spliced", id)
				}
			}
		}
	}
	for id, all := range got.failures {
		for _, f := range all {
			lost++
			if f.Reason != tokenize.ReasonContinuity.String() || !strings.Contains(f.Error, "--continuity") {
				t.Errorf("%v: failure %s %s: %s", id, f.Class, f.Reason, f.Error)
			}
		}
	}
	if rows == 0 || lost == 0 || !strings.Contains(r.stderr+r.stdout, "use --tap") {
		t.Errorf("%d rows, %d failures\n%s%s", rows, lost, r.stdout, r.stderr)
	}
}
