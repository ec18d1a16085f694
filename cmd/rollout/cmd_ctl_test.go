package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// The status of a run shows every count and every bound. ctl.txtar has the other operations.
func TestCtlStatus(t *testing.T) {
	t.Parallel()
	s := ctl.Status{
		RunID: "20260101-1", PID: 7, StartedAt: time.Now().Add(-61 * time.Second), Phase: "collecting", Paused: true,
		Planned: 96, Committed: 64, Filtered: 8, Failed: 2, Skipped: 1, Remaining: 21, InFlight: 5,
		Groups:  ctl.Groups{Begun: 12, Whole: 9, Informative: 8, Filtered: 1, Ahead: 3, MaxAhead: 4, Until: 64},
		Version: new(int32(3)), Lag: ctl.Lag{Counts: []int{5, 1, 0, 2}, Stale: 2, Max: new(1)},
		Cursor: &ctl.Cursor{Seq: 12, Groups: 2},
	}
	const want = `run      20260101-1 in run1
state    collecting, paused; process 7, started 1m01s ago
samples  96 planned = 64 committed + 8 filtered + 2 failed + 1 skipped + 21 remaining (5 in flight)
groups   12 started, 9 whole: 8 informative, 1 filtered; the run ends at 64 informative groups
ahead    3 groups not acknowledged (limit: 4)
version  3
lag      0: 5 groups, 1: 1 group, 3: 2 groups; 2 above the limit of 1
reader   has acknowledged up to group 2 of commit 12; last whole group: none yet
`
	var out bytes.Buffer
	noError(t, (&program{stdout: termsafe.NewWriter(&out)}).showCtlStatus("run1", &s))
	if out.String() != want {
		t.Errorf("status:\n%s\nwant:\n%s", out.String(), want)
	}
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
		{[]string{"pause", "run1"}, "put RUN before the operation: rollout ctl run1 pause"},
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
	long := strings.NewReader("\n\n" + strings.Repeat("0", ctl.MaxLine))
	err := sendTasks(nil, long, nil)
	if exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), "ctl: add: line 3 exceeds the limit of 64MiB for a task") || exit.HintOf(err) == "" {
		t.Errorf("sendTasks = %v, hint %q", err, exit.HintOf(err))
	}
}
