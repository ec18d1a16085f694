package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/harness"
)

// standins contains stand-ins for programs that pages use and that a machine can lack.
var standins = filepath.Join("testdata", "standin")

// harnessPath returns a PATH with the program mini. It is mini-swe-agent if ROLLOUT_HARNESS is the
// folder of .ci/harnesses.sh, otherwise a stand-in.
func harnessPath(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(os.Getenv("ROLLOUT_HARNESS"), "bin")
	if _, err := exec.LookPath(filepath.Join(dir, "mini")); !filepath.IsAbs(dir) || err != nil {
		dir = t.TempDir()
		mini := must(filepath.Abs(filepath.Join(standins, "mini.py")))(t)
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' '%s' \"$@\"\n", must(filepath.Abs(findPython(t)))(t), mini)
		noError(t, os.WriteFile(filepath.Join(dir, "mini"), []byte(script), 0o700)) //nolint:gosec // a program
	}
	return "'" + dir + "':\"$PATH\""
}

// documentedURL returns the URL at which the rollout simulate or rollout tap of a line serves.
func documentedURL(line string) string {
	switch address := listens.FindString(line); {
	case address != "":
		return "http://" + strings.TrimPrefix(address, "--listen ")
	case strings.HasPrefix(line, "rollout tap "):
		return "http://127.0.0.1:30001"
	}
	return "http://127.0.0.1:8283"
}

// oneSession records a session with one call at a tap, and seals it.
func oneSession(t *testing.T, tap string) {
	t.Helper()
	began := post(t, tap+"/r", `{"task": {"id": "t1", "prompt": "What is 6 * 7?"}}`)
	_, key, _ := strings.Cut(began, `"key":"`)
	key, _, _ = strings.Cut(key, `"`)
	post(t, tap+"/r/"+key+"/v1/chat/completions", `{"model": "policy", "messages": [{"role": "user", "content": "What is 6 * 7?"}]}`)
	post(t, tap+"/r/"+key+"/end", `{"reward": 1.0}`)
}

// post returns the answer to a request. The request must succeed.
func post(t *testing.T, url, body string) string {
	t.Helper()
	request := must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))(t)
	request.Header.Set("Content-Type", "application/json")
	answer := must(http.DefaultClient.Do(request))(t)
	defer answer.Body.Close()
	text := must(io.ReadAll(answer.Body))(t)
	if answer.StatusCode >= 300 {
		t.Fatalf("POST %s: status %d: %s", url, answer.StatusCode, text)
	}
	return string(text)
}

// The page of harnesses lists exactly the presets, each with the command that installs it.
func TestHarnessPageNamesPresets(t *testing.T) {
	t.Parallel()
	rows := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| `([^`]*install [^`]*)` ").FindAllStringSubmatch(page(t, "collector/harness/README.md"), -1)
	var got, want []string
	for _, row := range rows {
		got = append(got, row[1]+": "+row[2])
	}
	for _, name := range harness.PresetNames() {
		want = append(want, name+": "+must(harness.FindPreset(name))(t).Install)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page lists %q, want %q", got, want)
	}
}

// The settings on the page of harnesses run the agent on the page. All other YAML on the pages must be
// accepted by the loader of settings.
func TestHarnessPage(t *testing.T) {
	t.Parallel()
	python := must(filepath.Abs(findPython(t)))(t)
	var settings, program string
	for _, name := range pages(t) {
		for _, f := range fences(t, name) {
			switch text := strings.Join(f.lines, "\n") + "\n"; {
			case f.language == "yaml" && strings.Contains(text, "agent.py"):
				settings = text
			case f.language == "yaml" && !strings.Contains(text, "kind: components"): // TestRewardPage runs it
				mustRun(t, exit.OK, "config", "check", "-c", writeFile(t, "run.yaml", []byte(text)))
			case f.language == "py" && f.lines[0] == "import sys":
				program = text
			}
		}
	}
	_, url := startServing(t, t.TempDir(), nil, "simulate", "--serve-engine", "vllm", "--listen", "127.0.0.1:0")
	dir := t.TempDir()
	noError(t, os.Mkdir(filepath.Join(dir, "fixture"), 0o700))
	files := map[string]string{
		"run.yaml":         strings.NewReplacer("http://127.0.0.1:8000", url, "python3", python).Replace(settings),
		"fixture/agent.py": program,
		"tasks.jsonl":      `{"id": "t1", "prompt": "Write two notes. [script:harness]", "answer": "42"}`,
	}
	if exec.CommandContext(t.Context(), python, "-c", "import openai").Run() != nil {
		files["fixture/openai.py"] = string(must(os.ReadFile(filepath.Join(standins, "openai.py")))(t))
	}
	for name, text := range files {
		noError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	shell(t, dir, 0, "rollout collect -c run.yaml --quiet")
	rows := readDataset(t, filepath.Join(dir, "run1")).rows
	if len(rows) != 8 {
		t.Fatalf("%d samples have rows, want 8", len(rows))
	}
	for id, r := range rows {
		if len(r) != 1 || r[0].Verification != "exact" || r[0].ChainKind != "main" || r[0].Reward == nil {
			t.Errorf("%v: %d rows, the first is %s of kind %q, want one exact row of the main conversation with a reward", id, len(r), r[0].Verification, r[0].ChainKind)
		}
	}
}
