package runfolder

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
)

// TestGateResumeOfManyTasks checks that a run with unchanged tasks resumes without reading them, or
// with one read if they are given again. Memory holds 16 bytes per given task and no text.
func TestGateResumeOfManyTasks(t *testing.T) {
	const many = 20_000
	var text strings.Builder
	for i := range many {
		fmt.Fprintf(&text, "{\"id\":\"task-%06d\",\"prompt\":\"What is %d plus 7? Think step by step.\",\"answer\":\"%d\"}\n", i, i, i+7)
	}
	file := fileOf(t, "tasks.jsonl", text.String())
	l := configured(t, "tasks: {file: "+file+"}\n")
	dir := filepath.Join(t.TempDir(), "run")
	l.Config.Output.Dir = dir
	folder := begin(t, dir, 0o600)
	defer func() { _ = folder.close() }() // the test does not need the error
	check := NewTaskCheck(l.Config, nil)
	check.Dir, check.Mode = folder.Dir, folder.Mode
	set, err := check.Run(tasks.Read(file, nil))
	must(t, err)
	id := identityOf(t, l, nil)
	info, err := Describe(l, nil, id, set, nil, nil)
	must(t, err)
	must(t, folder.Create(info, set))
	for _, again := range []struct {
		name  string
		given bool
		most  float64
	}{
		{"not given", false, 1100}, // most of them make the settings
		{"given", true, 22 * many},
	} {
		l := configured(t, "tasks: {file: "+file+"}\n")
		if !again.given {
			l.ByKey["tasks.file"].Origin = "default"
		}
		l.Config.Output.Dir = dir
		allocs := testing.AllocsPerRun(1, func() {
			had := readRun(t, dir)
			set, bad, err := (&Earlier{Info: had, Folder: folder}).ReadTasks(l, nil, strings.NewReader(""), nil, false)
			if err != nil || bad != nil || !set.own || set.Tasks != many || set.Samples != many {
				t.Fatalf("%+v, %v, %v", set, bad, err)
			}
		})
		if allocs > again.most {
			t.Errorf("%s: %.0f allocations for %d tasks, want at most %.0f", again.name, allocs, many, again.most)
		}
		t.Logf("%s: %.2f allocations a task", again.name, allocs/many)
	}
}
