package ctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// Operations.
const (
	OpStatus     = "status"
	OpPause      = "pause"
	OpResume     = "resume"
	OpDrain      = "drain"
	OpSetVersion = "set-version"
	OpAck        = "ack"
	OpTask       = "task"
)

var ops = []string{OpStatus, OpPause, OpResume, OpDrain, OpSetVersion, OpAck, OpTask}

// A Request is one line of a client. Op decides which fields it uses.
type Request struct {
	Op      string          `json:"op"`
	Version *int32          `json:"version,omitempty"` // set-version: ≥ 0
	RunID   string          `json:"run_id,omitempty"`  // ack: run of the cursor; empty: this run
	Seq     *int64          `json:"seq,omitempty"`     // ack: commit of the last group, ≥ 1; 0: none
	Groups  *int            `json:"groups,omitempty"`  // ack: number of groups of that commit, ≥ 0
	Only    bool            `json:"only,omitempty"`    // ack: only that last group, and none before it
	Task    json.RawMessage `json:"task,omitempty"`    // task: a JSON object, like a line of a task file
}

// An Answer has the fields that all answers share.
type Answer struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"` // remedy; can be empty
	Code  int    `json:"code,omitempty"` // exit status of rollout ctl
}

// A Status is the state of a run. The counts of samples are of the whole run, over all its
// processes:
//
//	Planned = Committed + Filtered + Failed + Skipped + Remaining
type Status struct {
	RunID      string    `json:"run_id"`
	PID        int       `json:"pid"`
	StartedAt  time.Time `json:"started_at"`   // start of this process
	Phase      string    `json:"phase"`        // the current step, such as collecting, draining or stopping
	Paused     bool      `json:"paused"`       // set by pause, cleared by resume
	EndOfTasks bool      `json:"end_of_tasks"` // no further tasks are accepted

	Planned   int `json:"planned"`   // samples of the accepted tasks
	Committed int `json:"committed"` // samples with rows and keep other than false
	Filtered  int `json:"filtered"`  // samples with rows and keep=false
	Failed    int `json:"failed"`    // samples without rows after the last attempt
	Skipped   int `json:"skipped"`   // samples cut by the tail policy
	Remaining int `json:"remaining"`
	InFlight  int `json:"in_flight"` // part of Remaining

	Groups Groups `json:"groups"`
	// Version is the version that the engines sample with, or nil if unknown.
	Version *int32 `json:"version"`
	Lag     Lag    `json:"lag"`
	// Cursor is the last acknowledged cursor, and End is the cursor after the last whole group.
	// Each is nil if there is none.
	Cursor *Cursor `json:"cursor"`
	End    *Cursor `json:"end"`
}

// Groups counts the groups of a run.
type Groups struct {
	Begun       int `json:"begun"`       // groups with at least one started sample
	Whole       int `json:"whole"`       // groups whose samples are all committed or failed
	Ahead       int `json:"ahead"`       // groups begun, and not yet acknowledged, filtered or failed
	Filtered    int `json:"filtered"`    // whole groups with keep=false
	Informative int `json:"informative"` // whole groups with rows that are kept
	// MaxAhead bounds Ahead. Until informative groups end the run. 0: no bound.
	MaxAhead int `json:"max_ahead"`
	Until    int `json:"until"`
}

// Lag counts groups by their lag on arrival (package pace): the version when the group became
// whole, minus the version of its oldest token.
type Lag struct {
	// Counts[i] is the number of groups with a lag of i. It ends with the last nonzero count.
	// Counts[pace.LagMost] includes all higher lags. It is never nil, so that its JSON is a list.
	Counts []int `json:"counts"`
	// Stale is the number of groups with a lag above Max. Max is nil if there is no bound.
	Stale int  `json:"stale"`
	Max   *int `json:"max"`
}

// Text formats the histogram. It returns "" if there are no groups.
func (l *Lag) Text() string {
	text := format.Lags(l.Counts)
	if l.Stale > 0 && l.Max != nil {
		text += fmt.Sprintf("; %d above %d", l.Stale, *l.Max)
	}
	return text
}

// A Cursor is a position in the order in which groups became whole. It covers all groups of the
// commits before Seq, and the first Groups of commit Seq.
type Cursor struct {
	// RunID is the run that a client names with its cursor. Empty: the client named none.
	RunID  string `json:"-"`
	Seq    int64  `json:"seq"`
	Groups int    `json:"groups"`
}

// Accepted is the answer to a task.
type Accepted struct {
	Task    string `json:"task"`    // id of the task
	Group   string `json:"group"`   // id of its group
	Samples int    `json:"samples"` // number of samples of the group
	Again   bool   `json:"again"`   // the task was accepted before with the same content
}

// parse parses a request and checks everything that does not depend on the run.
func parse(line []byte) (r Request, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, badRequest(err)
	}
	if d.More() {
		return r, exit.Hint(exit.Usagef("more than one JSON value on a line"), "one request per line")
	}
	switch {
	case r.Op == "":
		return r, exit.Hint(exit.Usagef("the request has no op"), "the operations are: "+strings.Join(ops, ", "))
	case !slices.Contains(ops, r.Op):
		hint := cmp.Or(format.DidYouMean("", r.Op, ops), "the operations are: "+strings.Join(ops, ", "))
		return r, exit.Hint(exit.Usagef("%q is not an operation", termsafe.Text(r.Op, 40)), hint)
	case r.Op == OpSetVersion && (r.Version == nil || *r.Version < 0):
		return r, exit.Hint(exit.Usagef("set-version needs a version ≥ 0 and ≤ %d", math.MaxInt32), `{"op":"set-version","version":3}`)
	case r.Op == OpAck && (r.Seq == nil || r.Groups == nil || *r.Seq < 0 || *r.Groups < 0):
		return r, exit.Hint(exit.Usagef("ack needs seq ≥ 0 and groups ≥ 0"), `the event of a group has both: {"op":"ack","seq":5,"groups":2}`)
	case r.Op == OpTask && (len(r.Task) == 0 || r.Task[0] != '{'):
		return r, exit.Hint(exit.Usagef("task needs a JSON object"), `{"op":"task","task":{"id":"a","prompt":"…"}}`)
	}
	return r, nil
}

func badRequest(err error) error {
	text := err.Error()
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		text = fmt.Sprintf("%s: cannot be %s", kind.Field, kind.Value)
		if kind.Field == "" {
			text = "a request is a JSON object, not " + kind.Value
		}
	}
	return exit.Hint(exit.Usagef("not a request: %s", strings.TrimPrefix(text, "json: ")), `one JSON object per line, such as {"op":"status"}`)
}

func refused(err error) Answer {
	return Answer{Error: err.Error(), Hint: exit.HintOf(err), Code: exit.Code(err)}
}
