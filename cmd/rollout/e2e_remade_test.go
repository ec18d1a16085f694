package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/tokenize"
)

// Lost answers fail no sample. Every tenth reply is cut and every twentieth has a wrong length, and
// the server keeps no prompts besides its answers. If rows must be exact, their rollouts are
// repeated; otherwise rows of a lower grade are written and counted.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		recorded bool // with a tokenizer
		args     []string
		remade   string // for this reason; empty: not
		grade    tokenize.Grade
	}{
		{"no tokenizer", false, nil, "no_prompt", tokenize.Exact},
		{"exact rows are required", true, []string{"--require", "exact"}, "grade", tokenize.Exact},
		{"rebuilt ones will do", true, nil, "", tokenize.CountVerified},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const tasks, samples = 20, 10
			sim := newSim(t, lettasim.Config{InputIDs: true, BareTraces: true, Script: killScript(), Faults: lettasim.Faults{
				{Kind: lettasim.Drop, Rate: 0.1}, {Kind: lettasim.Truncated, Rate: 0.05},
			}})
			lines := sim.Tasks(lettasim.TaskOptions{Scripted: tasks})
			if tt.recorded {
				lines = recordedTasks(t, sim, tasks)
				tt.args = append(tt.args, "--tokenizer", modelFolder(t))
			}
			dir := filepath.Join(t.TempDir(), "run")
			r := mustRun(t, exit.OK, append([]string{
				"collect", "--server", serveSim(t, sim), "--model", simModel, "--out", dir, "--samples", fmt.Sprint(samples),
				"--tasks", writeFile(t, "tasks.jsonl", lines), "-c", writeFile(t, "run.yaml", []byte("run: {preflight: connect}\n")),
			}, tt.args...)...)
			mustRun(t, exit.OK, "verify", dir)

			lost := 0
			for _, n := range sim.Stats().Faults {
				lost += int(n)
			}
			got := readDataset(t, dir)
			if len(got.rows) != tasks*samples || len(got.failures) != 0 || lost < tasks*samples/20 {
				t.Errorf("%d samples are data and %d failed; %d answers were lost", len(got.rows), len(got.failures), lost)
			}
			lesser := 0
			for _, rows := range got.rows {
				for _, row := range rows {
					if row.Verification != tokenize.Exact.String() {
						lesser++
					}
				}
			}
			if (lesser > 0) != (tt.grade != tokenize.Exact) {
				t.Errorf("%d rows are not exact", lesser)
			}

			b, err := os.ReadFile(filepath.Join(dir, runfolder.ReportFile))
			if err != nil {
				t.Fatal(err)
			}
			var report struct {
				Proof struct{ Downgraded int } `json:"verification"`
				Last  struct {
					Remade        map[string]show.RolloutCount
					Kept          show.RolloutCount
					Downgraded    int            `json:"downgraded_rows"`
					FailedByClass map[string]int `json:"failed_by_class"`
				} `json:"last_invocation"`
			}
			if err := json.Unmarshal(b, &report); err != nil {
				t.Fatal(err)
			}
			last := report.Last
			if last.Downgraded != lesser || report.Proof.Downgraded != lesser {
				t.Errorf("%d rows are less than exact; the run counts %d, its report %d", lesser, last.Downgraded, report.Proof.Downgraded)
			}
			if last.Kept.N != tasks*samples || last.Kept.Mean <= 0 {
				t.Errorf("kept: %+v", last.Kept)
			}
			again := last.Remade[tt.remade]
			if tt.remade == "" && len(last.Remade) > 0 || tt.remade != "" && (again.N != lost || again.Timed != lost || len(last.Remade) != 1) {
				t.Errorf("%d answers were lost; made again: %+v", lost, last.Remade)
			}
			for text, want := range map[string]bool{
				fmt.Sprintf("%d rollouts in progress were lost and collected again: %s %d of ", lost, tt.remade, lost): tt.remade != "",
				fmt.Sprintf("%d rows are not exact because their reply was lost", lesser):                              lesser > 0,
			} {
				if strings.Contains(r.stderr, text) != want {
					t.Errorf("%q is reported: %v, want %v\n%s", text, !want, want, r.stderr)
				}
			}
		})
	}
}
