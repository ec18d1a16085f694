package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A toldRun is a collector that records its requests and keeps its tasks.
type toldRun struct {
	mu    sync.Mutex
	told  []string
	tasks map[string]string // by id
}

func (r *toldRun) note(format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, fmt.Sprintf(format, args...))
	return nil
}

func (r *toldRun) Status() ctl.Status {
	return ctl.Status{
		RunID: "20260101-1", PID: 7, StartedAt: time.Now().Add(-61 * time.Second), Phase: "collecting", Paused: true,
		Planned: 96, Committed: 64, Filtered: 8, Failed: 2, Skipped: 1, Remaining: 21, InFlight: 5,
		Groups:  ctl.Groups{Begun: 12, Whole: 9, Informative: 8, Filtered: 1, Ahead: 3, MaxAhead: 4, Until: 64},
		Version: new(int32(3)), Lag: ctl.Lag{Counts: []int{5, 1, 0, 2}, Stale: 2, Max: new(1)},
		Cursor: &ctl.Cursor{Seq: 12, Groups: 2},
	}
}
func (r *toldRun) Pause() error             { return r.note("pause") }
func (r *toldRun) Resume() error            { return r.note("resume") }
func (r *toldRun) Drain() error             { return r.note("drain") }
func (r *toldRun) SetVersion(v int32) error { return r.note("version %d", v) }

func (r *toldRun) Acknowledge(_ context.Context, c ctl.Cursor) error {
	if c.Seq > 12 {
		return exit.Hint(exit.Usagef("commit %d is none yet", c.Seq), "acknowledge what was given")
	}
	return r.note("ack %d %d", c.Seq, c.Groups)
}

func (r *toldRun) LeaveOut(c ctl.Cursor) error { return r.note("leave out %d %d", c.Seq, c.Groups) }

func (r *toldRun) Task(_ context.Context, task json.RawMessage) func() (ctl.Accepted, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var t struct{ ID string }
	err := json.Unmarshal(task, &t)
	had, again := r.tasks[t.ID]
	if err == nil && again && had != string(task) {
		err = exit.Usagef("task %q is there with other content", t.ID)
	}
	if err == nil {
		r.tasks[t.ID] = string(task)
	}
	return func() (ctl.Accepted, error) {
		return ctl.Accepted{Task: t.ID, Group: t.ID, Samples: 4, Again: again}, err
	}
}

func TestCtl(t *testing.T) {
	t.Parallel()
	url := serveSim(t, newSim(t, lettasim.Config{InputIDs: true}))
	tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"a","prompt":"What is 2+2?"}`+"\n"))
	dir := t.TempDir() + "/run"
	mustRun(t, exit.OK, "collect", "--server", url, "--model", simModel, "--tasks", tasks, "--out", dir, "--quiet")

	r := mustRun(t, exit.Unusable, "ctl", dir, "status")
	contains(t, r.stderr, "no collector is running", "--resume --out "+dir)
	contains(t, mustRun(t, exit.Folder, "ctl", t.TempDir(), "status").stderr, "run")
	lock := must(runfolder.TakeLock(dir, 0o644))(t)
	contains(t, mustRun(t, exit.Unusable, "ctl", dir, "status").stderr, "has no ctl.sock: process", "--stream")
	defer lock.Close()

	l := must(ctl.Listen(dir))(t)
	run := &toldRun{tasks: map[string]string{}}
	var serving sync.WaitGroup
	serving.Go(func() { l.Serve(t.Context(), run) })
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	}()
	status := mustRun(t, exit.OK, "ctl", dir, "status").stdout
	want := `run      20260101-1 in ` + dir + `
state    collecting, paused; process 7, for 1m01s
samples  96 planned = 64 committed + 8 filtered + 2 failed + 1 skipped + 21 remaining (5 in flight)
groups   12 started, 9 whole: 8 informative, 1 filtered; the run ends at 64 informative groups
ahead    3 groups not acknowledged, at most 4
version  3
lag      0: 5 groups, 1: 1 group, 3: 2 groups; 2 above 1
reader   has acknowledged up to group 2 of commit 12; last whole group: none yet
`
	if status != want {
		t.Errorf("status:\n%s\nwant:\n%s", status, want)
	}
	var s ctl.Status
	if err := json.Unmarshal([]byte(mustRun(t, exit.OK, "ctl", dir, "status", "--json").stdout), &s); err != nil || s.Groups.MaxAhead != 4 {
		t.Errorf("status --json: %+v, %v", s, err)
	}
	for _, args := range [][]string{{"pause"}, {"resume"}, {"set-version", "3"}, {"ack", "12", "1"}, {"drain"}} {
		if r := mustRun(t, exit.OK, append([]string{"ctl", dir}, args...)...); r.stdout != "" || !strings.HasPrefix(r.stderr, "rollout: "+dir+": ") {
			t.Errorf("%q printed %q, %q", args, r.stdout, r.stderr)
		}
	}
	if r := mustRun(t, exit.OK, "ctl", dir, "pause", "--json"); r.stdout != `{"ok":true}`+"\n" {
		t.Errorf("pause --json printed %q", r.stdout)
	}
	if want := []string{"pause", "resume", "version 3", "ack 12 1", "drain", "pause"}; !slices.Equal(run.told, want) {
		t.Errorf("got %q, want %q", run.told, want)
	}
	if r := mustRun(t, exit.Usage, "ctl", dir, "ack", "13", "0"); r.stderr != "rollout: commit 13 is none yet\nhint: acknowledge what was given\n" {
		t.Errorf("a refusal printed %q", r.stderr)
	}

	more := writeFile(t, "more.jsonl", []byte("\xef\xbb\xbf"+`{"id":"b", "prompt":"<b>"}`+"\n\n"+`{"id":"c"}`+"\n[1]\n{\"id\":\n"+`{"id":"b","prompt":"<b>"}`+"\n"+`{"id":"b"}`+"\n"+`{"id":"d"}`))
	r = mustRun(t, exit.Usage, "ctl", dir, "add", more)
	contains(t, r.stderr,
		"more.jsonl:4: is not a JSON object", "more.jsonl:5: is not a JSON object", `more.jsonl:7: task "b" is there with other content`,
		"3 tasks accepted, 12 samples; 1 task already accepted", "3 tasks refused",
	)
	if run.tasks["b"] != `{"id":"b","prompt":"<b>"}` || len(run.tasks) != 3 {
		t.Errorf("the run has the tasks %v", run.tasks)
	}
	var many, answers bytes.Buffer
	for i := range 3000 {
		fmt.Fprintf(&many, `{"id":"n%d"}`+"\n", i)
	}
	if code := runWith(t, &many, &answers, "ctl", dir, "add", "--json"); code != 0 || strings.Count(answers.String(), `"ok":true`) != 3000 || len(run.tasks) != 3003 {
		t.Errorf("3000 tasks of standard input: exit %d, %d answers, %d tasks", code, strings.Count(answers.String(), "\n"), len(run.tasks))
	}
}

func runWith(t *testing.T, stdin, stdout *bytes.Buffer, args ...string) int {
	t.Helper()
	return run(t.Context(), args, stdin, stdout, t.Output(), func(string) string { return "" })
}

func TestCtlArgs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "needs RUN and an operation"},
		{[]string{"run1"}, "needs an operation after run1"},
		{[]string{"run1", "puase"}, "did you mean pause?"},
		{[]string{"pause", "run1"}, "the run comes first: rollout ctl run1 pause"},
		{[]string{"run1", "pause", "now"}, "pause takes no arguments, got 1 argument"},
		{[]string{"run1", "set-version"}, "set-version takes N, got 0 arguments"},
		{[]string{"run1", "set-version", "three"}, `"three" is not a whole number`},
		{[]string{"run1", "set-version", "2147483648"}, "is not a whole number"},
		{[]string{"run1", "set-version", "--", "-1"}, "is not a whole number"},
		{[]string{"run1", "ack", "5"}, "ack takes SEQ GROUPS, got 1 argument"},
		{[]string{"run1", "add", "a", "b"}, "add takes [FILE|-], got 2 arguments"},
	} {
		contains(t, mustRun(t, exit.Usage, append([]string{"ctl"}, tt.args...)...).stderr, tt.want)
	}
}

// The error for a line that is too long names the line and has a hint.
func TestCtlAddLongLine(t *testing.T) {
	t.Parallel()
	long := io.MultiReader(strings.NewReader("\n\n"), io.LimitReader(zeros{}, ctl.MaxLine))
	err := sendTasks(nil, long, nil)
	if exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), "ctl: add: line 3 exceeds the limit of 64MiB for a task") || exit.HintOf(err) == "" {
		t.Errorf("sendTasks = %v, hint %q", err, exit.HintOf(err))
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}
