package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/collector/pace"
)

// The operations.
const (
	OpStatus     = "status"
	OpPause      = "pause"
	OpResume     = "resume"
	OpDrain      = "drain"
	OpSetVersion = "set-version"
	OpAck        = "ack"
	OpTask       = "task"
)

// Ops are all operations.
func Ops() []string {
	return []string{OpStatus, OpPause, OpResume, OpDrain, OpSetVersion, OpAck, OpTask}
}

// A Request is one line of a client. Which members it has follows from Op.
type Request struct {
	Op      string          `json:"op"`
	Version *int32          `json:"version,omitempty"` // set-version: ≥ 0
	RunID   string          `json:"run_id,omitempty"`  // ack: of the run that the cursor is of; empty: of this one
	Seq     *int64          `json:"seq,omitempty"`     // ack: of the last group's commit, ≥ 1; 0: none
	Groups  *int            `json:"groups,omitempty"`  // ack: how many groups of that commit, ≥ 0
	Only    bool            `json:"only,omitempty"`    // ack: that last group, and none before it
	Task    json.RawMessage `json:"task,omitempty"`    // task: a JSON object, as a line of a task file
}

// An Answer is what every answer says.
type Answer struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"` // what to do; empty where nobody knows
	Code  int    `json:"code,omitempty"` // the exit status of rollout ctl
}

// A Status is how a run stands. The counts of samples are those of the whole run, whatever
// process collected them:
//
//	Planned = Committed + Filtered + Failed + Skipped + Remaining
type Status struct {
	RunID      string    `json:"run_id"`
	PID        int       `json:"pid"`
	StartedAt  time.Time `json:"started_at"`   // of this process
	Phase      string    `json:"phase"`        // collecting, draining, stopping
	Paused     bool      `json:"paused"`       // by pause; resume ends it
	EndOfTasks bool      `json:"end_of_tasks"` // no further tasks are accepted

	Planned   int `json:"planned"`   // samples of the tasks that were accepted
	Committed int `json:"committed"` // with rows that are not left out (keep is not false)
	Filtered  int `json:"filtered"`  // with rows that are left out (keep is false)
	Failed    int `json:"failed"`    // without rows, after the last attempt
	Skipped   int `json:"skipped"`   // that were cut by the tail policy
	Remaining int `json:"remaining"`
	InFlight  int `json:"in_flight"` // of Remaining: at work now

	Groups Groups `json:"groups"`
	// Version is the version that samples now, and is nil where nobody said.
	Version *int32 `json:"version"`
	Lag     Lag    `json:"lag"`
	// Cursor is the last that a reader acknowledged, and End is behind the last whole group. Both
	// are nil where there is none.
	Cursor *Cursor `json:"cursor"`
	End    *Cursor `json:"end"`
}

// Groups counts the groups of a run.
type Groups struct {
	Begun       int `json:"begun"`       // of which a sample was taken up
	Whole       int `json:"whole"`       // of which all samples are committed or failed
	Ahead       int `json:"ahead"`       // begun, and neither acknowledged, filtered nor failed
	Filtered    int `json:"filtered"`    // whole, with keep=false
	Informative int `json:"informative"` // whole, with rows that are not left out
	// MaxAhead bounds Ahead, and Until is how many informative groups end the run. 0: no bound.
	MaxAhead int `json:"max_ahead"`
	Until    int `json:"until"`
}

// LagBuckets is how many lags are told apart.
const LagBuckets = pace.LagMost + 1

// Lag counts groups by their lag on arrival (package pace): the version when the group was
// whole, less that of its oldest token.
type Lag struct {
	// Counts[i] counts the groups with a lag of i. It ends with the last that is not 0.
	// Counts[LagBuckets-1] has all higher lags as well. It is a list for every reader: never nil.
	Counts []int `json:"counts"`
	// Stale counts the groups of Counts above Max. Max is nil where no bound was set.
	Stale int  `json:"stale"`
	Max   *int `json:"max"`
}

// Text is the histogram in words; empty where it counts nothing.
func (l *Lag) Text() string {
	text := human.Lags(l.Counts, LagBuckets)
	if l.Stale > 0 && l.Max != nil {
		text += fmt.Sprintf("; %d above %d", l.Stale, *l.Max)
	}
	return text
}

// A Cursor is a place in the order in which groups became whole: all groups of the commits
// before Seq, and the first Groups of commit Seq.
type Cursor struct {
	// RunID is the run of a cursor that a client acknowledges; empty: it did not say.
	RunID  string `json:"-"`
	Seq    int64  `json:"seq"`
	Groups int    `json:"groups"`
}

// Accepted is the answer to a task.
type Accepted struct {
	Task    string `json:"task"`    // its id
	Group   string `json:"group"`   // the id of its group
	Samples int    `json:"samples"` // of the group
	Again   bool   `json:"again"`   // it was accepted before, with the same content
}

// parse reads a request. It checks what can be checked without the run.
func parse(line []byte) (r Request, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, badRequest(err)
	}
	if d.More() {
		return r, exit.Hint(exit.Usagef("more than one JSON value on the line"), "one request per line")
	}
	switch {
	case r.Op == "":
		return r, exit.Hint(exit.Usagef("the request has no op"), "the operations are: "+strings.Join(Ops(), ", "))
	case !slices.Contains(Ops(), r.Op):
		hint := "the operations are: " + strings.Join(Ops(), ", ")
		if near := human.Nearest(r.Op, Ops()); near != "" {
			hint = "did you mean " + near + "?"
		}
		return r, exit.Hint(exit.Usagef("%q is not an operation", tame.Text(r.Op, 40)), hint)
	case r.Op == OpSetVersion && (r.Version == nil || *r.Version < 0):
		return r, exit.Hint(exit.Usagef("set-version needs a version ≥ 0 and ≤ %d", math.MaxInt32), `{"op":"set-version","version":3}`)
	case r.Op == OpAck && (r.Seq == nil || r.Groups == nil || *r.Seq < 0 || *r.Groups < 0):
		return r, exit.Hint(exit.Usagef("ack needs seq ≥ 0 and groups ≥ 0"), `the event of a group has both: {"op":"ack","seq":5,"groups":2}`)
	case r.Op == OpTask && (len(r.Task) == 0 || r.Task[0] != '{'):
		return r, exit.Hint(exit.Usagef("task needs a JSON object"), `{"op":"task","task":{"id":"a","prompt":"…"}}`)
	}
	return r, nil
}

// badRequest is the error of a line that is not a request.
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

// refused is the answer to a request that is not fulfilled.
func refused(err error) Answer {
	return Answer{Error: err.Error(), Hint: exit.HintOf(err), Code: exit.Code(err)}
}
