package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// Without tasks, doctor makes its agent call a tool. This finds a template that renders only tool
// results wrong.
func TestDoctorUsesATool(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{})
	var sent bytes.Buffer
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch {
		case r.Method != http.MethodPost:
		case r.URL.Path == "/v1/agents/": // replays a recorded agent that calls add
			body = bytes.ReplaceAll(body, []byte(`"task_id":"doctor"`), []byte(`"task_id":"tool"`))
		case strings.HasSuffix(r.URL.Path, "/messages"):
			sent.Write(body) // requests come one at a time
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		sim.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)

	qwen := filepath.Join("..", "..", "testdata", "tokenizers", "qwen3")
	args := []string{"doctor", "--server", server.URL, "--model", simModel, "--tokenizer"}
	// The recorded agent had another message. Only its trace shows that.
	r := mustRun(t, exit.OK, append(args, qwen)...)
	if !strings.Contains(sent.String(), "Call the tool ") {
		t.Errorf("the agent got %s", sent.String())
	}
	if strings.Contains(r.stdout, "no tool was called") || !strings.Contains(r.stdout, "2 calls with ") {
		t.Errorf("doctor printed\n%s", r.stdout)
	}

	other := t.TempDir()
	for _, name := range []string{"tokenizer.json.zst", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(qwen, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "tokenizer_config.json" {
			changed := bytes.ReplaceAll(b, []byte(`<tool_response>\\n`), []byte(`<tool_result>\\n`)) // only in the template
			if bytes.Equal(changed, b) {
				t.Fatal("the template does not mention results")
			}
			b = changed
		}
		if err := os.WriteFile(filepath.Join(other, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r = mustRun(t, exit.Unusable, append(args, other)...)
	if !strings.Contains(r.stdout, "bad  prompt 1 ") || strings.Contains(r.stdout, "bad  prompt 0 ") {
		t.Errorf("doctor printed\n%s", r.stdout)
	}
}

// An agent file without --model is enough, because it names the model.
func TestAgentFileAlone(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	url := serveSim(t, sim)
	file := writeFile(t, "agent.af", []byte(`{"agents":[{"name":"x","model":"`+simModel+`","system":"You are.","llm_config":{"handle":"`+simModel+`"},"tools":[],"messages":[]}]}`))
	tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"a","prompt":"Hi."}`+"\n"))
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"--server", url, "--agent-file", file, "--tasks", tasks, "--out", dir}
	mustRun(t, exit.OK, append([]string{"doctor"}, args...)...)
	mustRun(t, exit.OK, append([]string{"config", "check"}, args...)...)
	mustRun(t, exit.OK, append([]string{"collect", "--dry-run"}, args...)...)
	mustRun(t, exit.OK, append([]string{"collect"}, args...)...)
	if got := readDataset(t, dir); len(got.rows) != 1 {
		t.Errorf("%d samples have rows", len(got.rows))
	}
	mustRun(t, exit.OK, "collect", "--resume", "--out", dir)
	if r := mustRun(t, exit.Usage, "collect", "--server", url, "--tasks", tasks, "--out", dir+"2"); !strings.Contains(r.stderr, "use --model or --agent-file, or set agent.model") {
		t.Errorf("neither model nor file: %s", r.stderr)
	}
}
