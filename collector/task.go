package collector

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/rollout-rl/rollout/tokenize/enum"
)

// A Task is one task. It does not change after it was read.
type Task struct {
	// ID is unique among the tasks of a run.
	ID string
	// Messages are the user messages, sent one after the other; none if Recorded is not nil.
	Messages []string
	// Recorded, if not nil, names a server run that another program drove and that has ended. Its
	// only sample is read from the server's record. No agent is made, and nothing is sent. ID is
	// the id of the server run.
	Recorded *Recorded
	// Answer is the reference that scorers compare the output with, or nil.
	Answer *string
	// Metadata is copied to the rows unchanged: a JSON value, or nil.
	Metadata json.RawMessage
	// Samples overrides Config.Samples if it is not 0.
	Samples int
	// Agent overrides parts of the agent of the run: a JSON object, or nil.
	Agent json.RawMessage
	// At the Deadline, samples without a reply are cut, so that the group becomes whole. Each of
	// them gets a failure row with class censored, even if it has not begun. Zero means no
	// deadline.
	Deadline time.Time
	// Within is the deadline relative to the acceptance of the task. The caller sets Deadline from
	// it; a Collector ignores it.
	Within time.Duration
	// Source and Line locate the task in its file, for messages.
	Source string
	Line   int
}

// A Recorded identifies a server run.
type Recorded struct {
	// Server is the base URL under which the server run was found. It is only used in the sample
	// key: the URL of the server can change later.
	Server string
	Run    string
}

// bytes returns the approximate memory size of the task.
func (t *Task) bytes() int {
	n := len(t.ID) + len(t.Metadata) + len(t.Agent) + len(t.Source)
	if t.Answer != nil {
		n += len(*t.Answer)
	}
	for _, m := range t.Messages {
		n += len(m)
	}
	return n
}

// An Attempt is one try at one sample.
type Attempt struct {
	Task *Task
	// Key is the sample key. Index is the sample index in the group.
	Key              string
	Index, GroupSize int
	// N counts attempts from 1, over all processes of a run.
	N    int
	Kind Kind
	// RunID is Config.RunID.
	RunID string
	// ServerRun, if not nil, must be called with each server run that the attempt starts, as soon
	// as its id is known. It does not block.
	ServerRun func(id string)
	// Away is closed when the server is down and another server can make the sample. A wait for the
	// server must then end. Nil: never.
	Away <-chan struct{}
}

// A Kind is the reason for an attempt. Its name is a metric label.
type Kind uint8

// The kinds. A retry that an earlier process left is KindInfraRetry, unless the sample failed
// because of its data.
const (
	KindFirst      Kind = iota // first attempt at its sample
	KindInfraRetry             // after a failure of the infrastructure
	KindDataRetry              // after a failure of the data
	KindReattach               // takes over an attempt of an earlier process
)

var kinds = enum.List[Kind]{Noun: "kind", Words: []string{"first", "infra_retry", "data_retry", "reattach"}}

func (k Kind) String() string { return kinds.String(k) }

// Kinds lists every kind of attempt.
func Kinds() []Kind { return []Kind{KindFirst, KindInfraRetry, KindDataRetry, KindReattach} }

// GroupID identifies a group: the first 16 bytes, in hexadecimal, of the SHA-256 of
//
//	field("rollout sample 1") field(id) uint64(len(messages)) field(message)… field(agent)
//
// where field(x) is uint64(len(x)) x, all integers are little endian, and agent is the task's agent
// overrides as canonical JSON: no spaces, keys sorted by their bytes, numbers as they were written,
// and nothing at all for null and {}. Other fields of the task have no effect. For a Recorded task
// it is the SHA-256 of
//
//	field("rollout server run 1") field(server) field(run)
func GroupID(t *Task) string {
	h := sha256.New()
	var n [8]byte
	number := func(v int) {
		binary.LittleEndian.PutUint64(n[:], uint64(v))
		h.Write(n[:])
	}
	field := func(s string) {
		number(len(s))
		h.Write([]byte(s))
	}
	if t.Recorded != nil {
		field("rollout server run 1")
		field(t.Recorded.Server)
		field(t.Recorded.Run)
		return hex.EncodeToString(h.Sum(nil)[:16])
	}
	field("rollout sample 1")
	field(t.ID)
	number(len(t.Messages))
	for _, m := range t.Messages {
		field(m)
	}
	field(canonical(t.Agent))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// SampleKey identifies a sample in the dataset and the journal: its GroupID, a hyphen, and the
// index in decimal. A key is collected once.
func SampleKey(t *Task, index int) string {
	return sampleKey(GroupID(t), index)
}

func sampleKey(group string, index int) string {
	return group + "-" + strconv.Itoa(index)
}

// RolloutID identifies one attempt: the sample key, a slash, and the number of the attempt.
func RolloutID(key string, attempt int) string {
	return key + "/" + strconv.Itoa(attempt)
}

// canonical returns the canonical form of a JSON value. Invalid JSON, which the reader of tasks
// rejects, is returned unchanged.
func canonical(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return ""
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	if m, ok := v.(map[string]any); v == nil || ok && len(m) == 0 {
		return ""
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil { // sorts the keys of every object
		return string(raw)
	}
	return string(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}
