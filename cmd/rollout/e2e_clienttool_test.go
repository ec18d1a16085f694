package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A recorded rollout with a client tool in the configuration continues after the tool's result.
func TestRecordedClientTool(t *testing.T) {
	t.Parallel()
	want := collectRecorded(t, "client-tool-return", true, `
agent:
  client_tools:
    - name: bash
      description: Run a shell command.
      parameters: {type: object, properties: {cmd: {type: string, description: the command}}, required: [cmd]}
      answer: "a.txt\nb.txt"
`)
	if want.sends != 2 || len(want.rows) != 2 || want.rows[0].flags != nil || want.rows[1].flags == nil {
		t.Errorf("the recording gives %d sends and %d rows, want 2 and 2, the second row behind the result", want.sends, len(want.rows))
	}
}

// An exchange that was recorded on the route of a conversation is collected on that route.
func TestRecordedConversation(t *testing.T) {
	t.Parallel()
	collectRecorded(t, "conversation", false, "agent: {conversation: true}\n")
}

func collectRecorded(t *testing.T, name string, clientTools bool, config string) *wanted {
	t.Helper()
	all := recordings(t)
	i := slices.IndexFunc(all, func(r *recording) bool { return r.name == name })
	want := all[i].want(t, clientTools)
	sim := newSim(t, lettasim.Config{InputIDs: true})
	counter, url := countSends(t, sim)
	var task []byte
	for line := range bytes.Lines(sim.Tasks(lettasim.TaskOptions{Cases: true})) {
		if bytes.HasPrefix(line, []byte(`{"id":"`+name+`"`)) {
			task = line
		}
	}
	dir := filepath.Join(t.TempDir(), "run")
	mustRun(t, exit.OK, "collect", "-c", writeFile(t, "run.yaml", []byte(config)), "--server", url, "--model", simModel,
		"--tasks", writeFile(t, "tasks.jsonl", task), "--out", dir, "--quiet")
	mustRun(t, exit.OK, "verify", dir)
	checkSample(t, want, sampleID{name, 0}, readDataset(t, dir), counter)
	requests := sim.Stats().Requests
	if n := requests["POST /v1/conversations/{id}/messages"]; (n > 0) != strings.Contains(config, "conversation") {
		t.Errorf("%d sends on a conversation", n)
	}
	return want
}
