package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// Output that the engine aborted is not data, even if the server reports the end of a turn. A
// sample that is always aborted fails as infrastructure, with its tokens. Other samples are
// unaffected.
func TestAbortedIsNoData(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Faults: lettasim.Faults{
		{Kind: lettasim.Abort, Aim: []lettasim.Aim{{Task: "scripted-0002", Sample: -1}}, Attempts: 99},
		{Kind: lettasim.AbortEarly, Aim: []lettasim.Aim{{Task: "scripted-0004", Sample: -1}}, Attempts: 99},
	}})
	dir := filepath.Join(t.TempDir(), "run")
	r := mustRun(t, exit.Failures, "collect", "--server", serveSim(t, sim), "--model", simModel, "--out", dir, "--retries", "1", "--fail-on-error", "50%",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 6})))
	mustRun(t, exit.OK, "verify", dir)
	got := readDataset(t, dir)
	for _, task := range []string{"scripted-0002", "scripted-0004"} {
		id := sampleID{task, 0}
		if len(got.rows[id]) > 0 || len(got.failures[id]) != 1 || len(got.rows) != 4 {
			t.Fatalf("%d samples have rows, %s has %d rows and %d failures\n%s", len(got.rows), task, len(got.rows[id]), len(got.failures[id]), r.stderr)
		}
		f := got.failures[id][0]
		if f.Class != "aborted" || f.Status != "error" || f.Attempt < 2 || !strings.Contains(f.Error, "aborted a call") {
			t.Errorf("%s: class %s, status %s, attempt %d: %s", task, f.Class, f.Status, f.Attempt, f.Error)
		}
		if task == "scripted-0002" && len(f.OutputIDs) == 0 {
			t.Error("nothing is left of the tokens")
		}
	}
}

// Rows, summary and report agree about outputs that the engine cut, also after a tool call. The
// server sends the prompts, so nothing is rebuilt.
func TestEndsOfRows(t *testing.T) {
	t.Parallel()
	script := lettasim.Script{Calls: lettasim.Range{Min: 2, Max: 3}, Drift: 0.5, Length: 0.4}
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: script, Faults: lettasim.Faults{{Kind: lettasim.LengthCall, Rate: 0.4}}})
	dir := filepath.Join(t.TempDir(), "run")
	r := mustRun(t, exit.OK, "collect", "--server", serveSim(t, sim), "--model", simModel, "--out", dir,
		"-c", writeFile(t, "run.yaml", []byte("agent: {keep: true, tools: [add]}\n")),
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 24})))
	mustRun(t, exit.OK, "verify", dir)
	steps := map[string]bool{}
	length, middle := 0, 0 // samples with a truncated row; rows with an earlier output at the limit
	for id, rows := range readDataset(t, dir).rows {
		cut := false
		for _, row := range rows {
			n := len(row.FinishReasons)
			if slices.Contains(row.FinishReasons, "") || slices.Contains(row.StepIDs, "") || len(row.StepIDs) != n {
				t.Errorf("%v: calls ended with %q, steps %q", id, row.FinishReasons, row.StepIDs)
			}
			for _, step := range row.StepIDs {
				if steps[step] {
					t.Errorf("%v: step %s twice", id, step)
				}
				steps[step] = true
			}
			last := row.FinishReasons[n-1] == "length"
			if row.Truncated != last || slices.Contains(row.Flags, "length") != last || slices.Contains(row.Flags, "cut") {
				t.Errorf("%v: truncated %v, flags %q, calls ended with %q", id, row.Truncated, row.Flags, row.FinishReasons)
			}
			cut = cut || last
			if slices.Contains(row.FinishReasons[:n-1], "length") {
				middle++
			}
		}
		if cut {
			length++
		}
		if last := rows[len(rows)-1]; (last.Status == "truncated") != last.Truncated {
			t.Errorf("%v: status %s, the last row is truncated: %v", id, last.Status, last.Truncated)
		}
	}
	if length < 4 || middle < 2 {
		t.Fatalf("%d samples with a truncated row and %d rows with the limit in the middle are too few", length, middle)
	}
	if !strings.Contains(r.stderr, "at the engine's token limit") || strings.Contains(r.stderr, "max_row_tokens") {
		t.Errorf("the summary is\n%s", r.stderr)
	}
	text := mustRun(t, exit.OK, "report", dir).stdout
	if strings.Contains(text, "max_row_tokens") || !strings.Contains(text, "ended at the engine") {
		t.Errorf("the report is\n%s", text)
	}
}
