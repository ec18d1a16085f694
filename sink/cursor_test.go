package sink_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// TestAcknowledge tests that the last acknowledgement survives the process and never moves back.
func TestAcknowledge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if ack, err := sink.ReadAck(dir); ack != (sink.Cursor{}) || err != nil {
		t.Errorf("of nothing: %+v, %v", ack, err)
	}
	log := readLog(t, dir)
	if len(log.Commits) != 0 {
		t.Errorf("%d commits in an empty folder", len(log.Commits))
	}
	sinktest.Write(t, dir, sink.Config{}, alone(samples(3)))
	if err := log.Follow(); err != nil || len(log.Commits) != 1 {
		t.Errorf("Follow of a log that began empty: %d commits, %v", len(log.Commits), err)
	}
	d := open(t, dir, sink.Config{})
	cursor := func(run string, seq int64, groups int) sink.Cursor {
		return sink.Cursor{RunID: run, Seq: seq, Groups: groups}
	}
	for _, tt := range []struct {
		give  sink.Cursor
		fails string
		want  sink.Cursor
	}{
		{cursor("run", 0, 0), "", cursor("run", 0, 0)},
		{cursor("run", 1, 2), "", cursor("run", 1, 2)},
		{cursor("run", 1, 1), "", cursor("run", 1, 2)},
		{cursor("run", 0, 7), "", cursor("run", 1, 2)},
		{cursor("other", 1, 3), `belongs to run "other"`, cursor("run", 1, 2)},
		{cursor("", 1, 3), `belongs to run ""`, cursor("run", 1, 2)},
		{cursor("run", 2, 1), "the log ends at entry 1", cursor("run", 1, 2)},
		{cursor("run", 9, 0), "the log ends at entry 1", cursor("run", 1, 2)},
		{cursor("run", -1, 0), "must be ≥ 0", cursor("run", 1, 2)},
		{cursor("run", 2, 0), "", cursor("run", 2, 0)},
	} {
		err := d.Acknowledge(tt.give)
		if tt.fails == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%+v: %v, want %q", tt.give, err, tt.fails)
		}
		got, err := sink.ReadAck(dir)
		if tt.want == cursor("run", 0, 0) { // the beginning needs no file
			tt.want = sink.Cursor{}
		}
		if got != tt.want || err != nil || d.Acknowledged() != tt.want {
			t.Errorf("%+v: %+v and %+v, want %+v (%v)", tt.give, got, d.Acknowledged(), tt.want, err)
		}
	}
	name := filepath.Join(dir, "ack.json")
	if body, err := os.ReadFile(name); err != nil || string(body) != `{"run_id":"run","seq":2,"groups":0}`+"\n" {
		t.Errorf("%q, %v", body, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, ".tmp-ack.json-x"), []byte("{"), 0o666))
	if d = open(t, dir, sink.Config{}); d.Acknowledged() != cursor("run", 2, 0) {
		t.Errorf("opened again: %+v", d.Acknowledged())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".tmp-*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	for body, want := range map[string]string{
		`{`:                                     "unexpected end",
		`{"seq":1}`:                             "not a valid cursor",
		`{"run_id":"run","seq":7,"groups":0}`:   "the log ends at entry 1",
		`{"run_id":"other","seq":1,"groups":0}`: `belongs to run "other"`,
	} {
		must(t, os.WriteFile(name, []byte(body), 0o666))
		if _, err := sink.Create(dir, sink.Config{}); !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}
