package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

// shownOutput formats the sampled part of a row: mask and version of each token, and the flags.
func shownOutput(r *sink.StoredRow) string {
	var b strings.Builder
	for i := r.PromptLength; int(i) < len(r.InputIDs); i++ {
		fmt.Fprint(&b, r.LossMask[i])
	}
	if r.Versions != nil {
		fmt.Fprintf(&b, " versions %v", r.Versions[r.PromptLength:])
	}
	if r.Unscored > 0 {
		fmt.Fprintf(&b, " unscored %d", r.Unscored)
	}
	return strings.TrimSpace(b.String() + " " + strings.Join(r.Flags, ","))
}

// Exchanges with rare outputs give the expected rows, also when the same server runs are read a
// second time. The settings that refuse or mask such outputs work.
func TestOutputCases(t *testing.T) {
	t.Parallel()
	cases, err := lettasim.LoadCases(os.DirFS(filepath.Join("..", "..", "testdata", "cases")), ".")
	if err != nil {
		t.Fatal(err)
	}
	const (
		all     = "1111111111"
		refused = "token_mismatch vocab"
	)
	kept := map[string]string{
		"weight-versions-spans": all + " versions [7 7 7 7 8 8 8 8 8 8]",
		"wv-int":                all + " versions [7 7 7 7 7 7 7 7 7 7]",
		"lp-f32min":             "1110111111 unscored 1",
		"eos-leak":              all + "11 after_stop",
		"oov":                   all + " padded_id",
	}
	cases = slices.DeleteFunc(cases, func(c *lettasim.Case) bool { return kept[c.Name] == "" })
	sim, err := lettasim.New(lettasim.Config{Cases: cases})
	if err != nil {
		t.Fatal(err)
	}
	url := serveSim(t, sim)
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Cases: true}))
	strict := maps.Clone(kept)
	strict["oov"], strict["eos-leak"] = refused, all+"00 unscored 2 after_stop"
	driven := []string{"--keep-agents", "--policy-version", "trace", "--tasks", tasks, "--preflight", "connect"}
	for _, tt := range []struct {
		name, config string
		code         int
		args         []string
		want         map[string]string
	}{
		{"driven", "", exit.OK, driven, kept},
		{"read", "", exit.OK, []string{"--from-runs", "since=2020-01-01T00:00:00Z"}, kept},
		{"strict", "tokens: {vocab: strict, after_stop: mask}", exit.Failures, driven, strict},
	} {
		dir := filepath.Join(t.TempDir(), tt.name)
		mustRun(t, tt.code, append([]string{
			"collect", "--config", writeFile(t, "collect.yaml", []byte(tt.config)), "--server", url, "--model", simModel, "--tokenizer", qwen3Dir,
			"--quiet", "--fail-on-error", "50%", "--retries", "0", "--out", dir,
		}, tt.args...)...)
		mustRun(t, exit.OK, "verify", dir)
		got := readDataset(t, dir)
		var said []string
		for _, rows := range got.rows {
			for _, r := range rows {
				said = append(said, shownOutput(r))
			}
		}
		for _, list := range got.failures {
			for _, f := range list {
				said = append(said, f.Class+" "+f.Reason)
			}
		}
		slices.Sort(said)
		if want := slices.Sorted(maps.Values(tt.want)); !slices.Equal(said, want) {
			t.Errorf("%s: %q\nwant %q", tt.name, said, want)
		}
	}
}
