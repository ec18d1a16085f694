package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
)

// Script commands for collect --stream.

// tell RUN REQUEST sends a request to the collector of a run and prints its answer.
func scriptTell(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tell RUN REQUEST")
	}
	var r ctl.Request
	ts.Check(json.Unmarshal([]byte(args[1]), &r))
	c, err := ctl.Dial(context.Background(), ts.MkAbs(args[0]))
	ts.Check(err)
	defer c.Close()
	var answer json.RawMessage
	err = c.Do(r, &answer)
	if refused, ok := errors.AsType[*ctl.RefusedError](err); ok {
		answer, err = json.Marshal(refused.Answer)
	}
	ts.Check(err)
	_, err = fmt.Fprintf(ts.Stdout(), "%s\n", answer)
	ts.Check(err)
}

// ahead W K RUN [-] waits until W groups are whole. It fails if more than W groups have begun, or
// if more than K are ahead. It then acknowledges the groups, unless the last argument is "-".
func scriptAhead(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: ahead W K RUN [-]")
	}
	whole, err := strconv.Atoi(args[0])
	ts.Check(err)
	most, err := strconv.Atoi(args[1])
	ts.Check(err)
	c, err := ctl.Dial(context.Background(), ts.MkAbs(args[2]))
	ts.Check(err)
	defer c.Close()
	var s ctl.Status
	poll(ts, "whole groups", func() bool {
		s = ctl.Status{}
		ts.Check(c.Do(ctl.Request{Op: ctl.OpStatus}, &s))
		if s.Groups.Ahead > most || s.Groups.Begun > whole {
			ts.Fatalf("%d groups are begun and %d ahead, want at most %d and %d", s.Groups.Begun, s.Groups.Ahead, whole, most)
		}
		return s.Groups.Whole == whole
	})
	if len(args) == 3 {
		ts.Check(c.Do(ctl.Request{Op: ctl.OpAck, Seq: &s.End.Seq, Groups: &s.End.Groups}, nil))
	}
}

// counts FILE N checks the last event of a finished run: every planned sample is counted once, none
// remains, and there are at least N informative groups. A few more are allowed, which were in
// progress.
func scriptCounts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: counts FILE N")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	lines := strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n")
	var done struct {
		Summary struct {
			Planned, Committed, Filtered, Failed, Skipped, Remaining int
			Groups                                                   struct{ Informative, Filtered int }
		}
	}
	ts.Check(json.Unmarshal([]byte(lines[len(lines)-1]), &done))
	s := done.Summary
	if s.Planned == 0 || s.Planned != s.Committed+s.Filtered+s.Failed+s.Skipped || s.Remaining != 0 {
		ts.Fatalf("%+v does not add up", s)
	}
	if g := s.Groups; g.Informative < want || g.Informative > want+4 || g.Informative*2 != s.Committed || g.Filtered*2 != s.Filtered {
		ts.Fatalf("%+v, want %d informative groups of 2 samples", s, want)
	}
}
