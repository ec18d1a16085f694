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

// The operations that a client can request.
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

// A Request is one line sent by a client. Op determines which of the other fields are used.
type Request struct {
	Op      string          `json:"op"`
	Version *int32          `json:"version,omitempty"` // set-version: ≥ 0
	RunID   string          `json:"run_id,omitempty"`  // ack: the run that the cursor belongs to; empty: this run
	Seq     *int64          `json:"seq,omitempty"`     // ack: commit of the last group, ≥ 1; 0: none
	Groups  *int            `json:"groups,omitempty"`  // ack: number of groups in that commit, ≥ 0
	Only    bool            `json:"only,omitempty"`    // ack: only this group, and none of the groups before it
	Task    json.RawMessage `json:"task,omitempty"`    // task: a JSON object, like a line of a task file
}

// An Answer contains the fields that all answers have in common.
type Answer struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"` // can be empty
	Code  int    `json:"code,omitempty"` // exit status of rollout ctl
}

// A Status is the state of a run. The counts of samples cover all processes of the run:
//
//	Planned = Committed + Filtered + Failed + Skipped + Remaining
type Status struct {
	RunID      string    `json:"run_id"`
	PID        int       `json:"pid"`
	StartedAt  time.Time `json:"started_at"`   // start time of this process
	Phase      string    `json:"phase"`        // the current step, such as collecting, draining or stopping
	Paused     bool      `json:"paused"`       // set by pause, cleared by resume
	EndOfTasks bool      `json:"end_of_tasks"` // no more tasks are accepted

	Planned   int `json:"planned"`   // samples of all accepted tasks
	Committed int `json:"committed"` // samples with rows and keep other than false
	Filtered  int `json:"filtered"`  // samples with rows and keep=false
	Failed    int `json:"failed"`    // samples without rows after the last attempt
	Skipped   int `json:"skipped"`   // samples cut by the tail policy
	Remaining int `json:"remaining"`
	InFlight  int `json:"in_flight"` // part of Remaining

	Groups Groups `json:"groups"`
	// Version is the version that the engines sample with. It is nil if unknown.
	Version *int32 `json:"version"`
	Lag     Lag    `json:"lag"`
	// Cursor is the last acknowledged cursor. End is the cursor after the last whole group. A
	// cursor that does not exist is nil.
	Cursor *Cursor `json:"cursor"`
	End    *Cursor `json:"end"`
}

// Groups counts the groups of a run.
type Groups struct {
	Begun       int `json:"begun"`       // groups with at least one started sample
	Whole       int `json:"whole"`       // groups whose samples are all committed or failed
	Ahead       int `json:"ahead"`       // groups that have begun but are not yet acknowledged, filtered or failed
	Filtered    int `json:"filtered"`    // whole groups with keep=false
	Informative int `json:"informative"` // whole groups with rows that were kept
	// MaxAhead is the maximum value of Ahead. The run ends after Until informative groups. For both
	// fields, 0 means no limit.
	MaxAhead int `json:"max_ahead"`
	Until    int `json:"until"`
}

// Lag is a histogram of groups by their policy lag on arrival (see package pace). The lag is the
// policy version at the time the group became whole, minus the version of the group's oldest token.
type Lag struct {
	// Counts[i] is the number of groups with a lag of i, up to the last nonzero count.
	// Counts[pace.LagMost] includes all higher lags. Counts is never nil, so that its JSON is
	// always a list.
	Counts []int `json:"counts"`
	// Stale is the number of groups whose lag exceeds Max. Max is nil if there is no limit.
	Stale int  `json:"stale"`
	Max   *int `json:"max"`
}

// Text formats the histogram. It returns "" if there are no groups.
func (l *Lag) Text() string {
	text := format.Lags(l.Counts)
	if l.Stale > 0 && l.Max != nil {
		text += fmt.Sprintf("; %d above the limit of %d", l.Stale, *l.Max)
	}
	return text
}

// A Cursor is a position in the order in which groups became whole. It covers all groups in the
// commits before Seq, and the first Groups groups in commit Seq.
type Cursor struct {
	// RunID is the run that a client specified with its cursor. It is empty if the client specified
	// none.
	RunID  string `json:"-"`
	Seq    int64  `json:"seq"`
	Groups int    `json:"groups"`
}

// Accepted is the answer to a task that was accepted.
type Accepted struct {
	Task    string `json:"task"`    // id of the task
	Group   string `json:"group"`   // id of its group
	Samples int    `json:"samples"` // number of samples in the group
	Again   bool   `json:"again"`   // true if the same task, with the same content, had already been accepted
}

// parse parses a request and checks everything that does not depend on the run.
func parse(line []byte) (r Request, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, badRequest(err)
	}
	if d.More() {
		return r, exit.Hint(exit.Usagef("more than one JSON value on a line"), "send one request per line")
	}
	switch {
	case r.Op == "":
		return r, exit.Hint(exit.Usagef("the request has no op"), "the operations are: "+strings.Join(ops, ", "))
	case !slices.Contains(ops, r.Op):
		hint := cmp.Or(format.DidYouMean("", r.Op, ops), "the operations are: "+strings.Join(ops, ", "))
		return r, exit.Hint(exit.Usagef("%q is not an operation", termsafe.Text(r.Op, 40)), hint)
	case r.Op == OpSetVersion && (r.Version == nil || *r.Version < 0):
		return r, exit.Hint(exit.Usagef("set-version needs a version from 0 to %d", math.MaxInt32), `{"op":"set-version","version":3}`)
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
		text = fmt.Sprintf("%s has an invalid value (%s)", kind.Field, kind.Value)
		if kind.Field == "" {
			text = "want a JSON object, got " + kind.Value
		}
	}
	return exit.Hint(exit.Usagef("not a valid request: %s", strings.TrimPrefix(text, "json: ")), `send one JSON object per line, such as {"op":"status"}`)
}

func refused(err error) Answer {
	return Answer{Error: err.Error(), Hint: exit.HintOf(err), Code: exit.Code(err)}
}
