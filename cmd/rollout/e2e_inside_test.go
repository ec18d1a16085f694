package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A collection of agents with subagents stores the values from inside their calls. Every value in every
// row must be the engine's value for this token after exactly these tokens. Python must read the same
// values.
func TestInside(t *testing.T) {
	t.Parallel()
	shape := tokenize.ExpertShape{Layers: 4, TopK: 2, Experts: 64}
	for _, dialect := range []enginesim.Dialect{enginesim.DialectVLLM, enginesim.DialectSGLang} {
		t.Run(dialect.String(), func(t *testing.T) {
			t.Parallel()
			cfg := enginesim.Config{
				Model: "scripted", MaxModelLen: 1 << 18, Dialect: dialect, Experts: shape, SamplingMask: true, VersionSpans: true, Version: "step-7",
			}
			var err error
			cfg.Tokenizer, cfg.Template, err = enginesim.SmallModel()
			noError(t, err)
			engine := must(enginesim.New(cfg))(t)
			sglang := dialect != enginesim.DialectVLLM
			n := 6
			var lines []byte
			for i, prompt := range agentPrompts(n) {
				lines = fmt.Appendf(lines, "{\"id\": \"t%d\", \"prompt\": %q}\n", i+1, prompt)
			}
			dir := filepath.Join(t.TempDir(), "run")
			config := writeFile(t, "run.yaml", fmt.Appendf(nil, `
harness: {command: [%s, "{base_url}", "{key}", "{prompt}"], env: {AGENT_KEYS: %q}, timeout: 60s}
engine: [%q]
tasks: {file: %q}
server: {adaptive: false, max_in_flight: %d}
output: {dir: %q, weight_versions: true, routed_experts: 4x2/64, sampling_mask: %v}
`, agentProgram, t.TempDir(), serve(t, &http.Server{Handler: engine, ReadHeaderTimeout: time.Minute}), writeFile(t, "tasks.jsonl", lines), n, dir, sglang))
			p := startProgram(t, "rollout", []string{"TMPDIR=" + t.TempDir()}, "collect", "-c", config, "--quiet")
			p.ends(t, 3*time.Minute, exit.OK)
			got := verified(t, dir)
			checkTrained(t, got, engine.Calls())
			read := map[string]*insideRow{}
			for line := range bytes.Lines(runPython(t, "inside.py", dir)) {
				var r insideRow
				noError(t, json.Unmarshal(line, &r))
				read[fmt.Sprint(r.Key, r.Segment)] = &r
			}
			rows := 0
			for _, row := range got.allRows() {
				checkInside(t, row, read[fmt.Sprint(row.SampleKey, row.SegmentIndex)], shape, sglang)
				rows++
			}
			if rows < n || len(read) != rows {
				t.Errorf("%d rows, and Python has %d", rows, len(read))
			}
		})
	}
}

// An insideRow is a line of inside.py.
type insideRow struct {
	Key      string
	Segment  int
	Experts  [][]int32
	Masks    [][]int32
	Versions []string
}

func checkInside(t *testing.T, row *sink.StoredRow, read *insideRow, shape tokenize.ExpertShape, sglang bool) {
	t.Helper()
	ids := row.InputIDs
	stored := tokenize.Experts{Shape: shape, IDs: row.RoutedExperts}
	if read == nil || stored.Tokens() != len(ids) || len(read.Experts) != len(ids) {
		t.Fatalf("experts of %d tokens, want %d, and Python has %v", stored.Tokens(), len(ids), read != nil)
	}
	filler := slices.Repeat([]int32{-1}, shape.Layers*shape.TopK)
	for i := range ids {
		want := filler
		if i < len(ids)-1 {
			want = enginesim.Experts(shape, ids[:i+1])
		}
		var packed tokenize.Experts
		packed.Shape = shape
		for _, id := range want {
			packed.Append(int64(id))
		}
		if !bytes.Equal(row.RoutedExperts[i*shape.TokenBytes():(i+1)*shape.TokenBytes()], packed.IDs) || !slices.Equal(read.Experts[i], want) {
			t.Fatalf("token %d: other experts than the engine's", i)
		}
	}
	if !sglang {
		if row.SamplingMaskLengths != nil || row.WeightVersions != nil {
			t.Errorf("masks %v and versions %v that the engine did not return", row.SamplingMaskLengths, row.WeightVersions)
		}
		return
	}
	if len(row.SamplingMaskLengths) != len(ids) || len(read.Masks) != len(ids) || len(read.Versions) != len(ids) {
		t.Fatalf("%d and %d masks and %d versions for %d tokens", len(row.SamplingMaskLengths), len(read.Masks), len(read.Versions), len(ids))
	}
	versions := make([]string, len(ids))
	for k, role := range row.TurnRoles {
		lo, hi := row.TurnOffsets[k], row.TurnOffsets[k+1]
		if tokenize.Role(role) != tokenize.RoleAssistant {
			continue
		}
		for _, s := range enginesim.Spans("step-7", int(hi-lo)) {
			for i := s.Start; i < s.End; i++ {
				versions[lo+i] = s.Version
			}
		}
	}
	if !slices.Equal(read.Versions, versions) {
		t.Errorf("versions %v, want %v", read.Versions, versions)
	}
	for i, id := range ids {
		var want []int32
		if versions[i] != "" {
			want = enginesim.Mask(ids[:i], id)
		}
		if !slices.Equal(read.Masks[i], want) {
			t.Fatalf("token %d: the mask %v, want %v", i, read.Masks[i], want)
		}
	}
}
