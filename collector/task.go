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

// A Task is one task. It does not change after it has been read.
type Task struct {
	// ID is unique among the tasks of a run.
	ID string
	// Messages are the user messages, which are sent one after the other. It is empty if Recorded
	// is not nil.
	Messages []string
	// Recorded, if not nil, identifies a finished server run that another program drove. The only
	// sample of the task is read from the server's record: no agent is made, and nothing is sent.
	// ID is the id of the server run.
	Recorded *Recorded
	// Answer is the reference that scorers compare the output with, or nil.
	Answer *string
	// Metadata is a JSON value that is copied to the rows unchanged, or nil.
	Metadata json.RawMessage
	// Samples overrides Config.Samples if it is not 0.
	Samples int
	// Agent is a JSON object that overrides settings of the run's agent, or nil.
	Agent json.RawMessage
	// Deadline is the time at which samples without a reply are cut, so that the group becomes
	// whole. Each sample that is cut gets a failure row with class censored, even if it has not yet
	// begun. Zero means no deadline.
	Deadline time.Time
	// Within is the deadline relative to the time at which the task was accepted. The caller
	// computes Deadline from Within. A Collector ignores it.
	Within time.Duration
	// Source and Line are the file and the line of the task, for messages.
	Source string
	Line   int
}

// A Recorded identifies a server run.
type Recorded struct {
	// Server is the base URL at which the server run was found. It is used only in the sample key,
	// because the URL of the server can change later.
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
	// N is the number of the attempt at its sample. It starts at 1 and counts across all processes
	// of a run.
	N    int
	Kind Kind
	// RunID is Config.RunID.
	RunID string
	// ServerRun, if not nil, must be called with the id of each server run that the attempt starts,
	// as soon as the id is known. It does not block.
	ServerRun func(id string)
	// Away is closed when the server is down and another server can take the sample. A Backend must
	// then stop waiting for the server. Away is nil if the sample cannot move.
	Away <-chan struct{}
}

// A Kind is the reason for an attempt. Its name is a metric label.
type Kind uint8

// The kinds. A retry that an earlier process left has KindInfraRetry, unless the sample failed
// because of the policy.
const (
	KindFirst      Kind = iota // first attempt at its sample
	KindInfraRetry             // after a failure of the infrastructure
	KindDataRetry              // after a failure of the policy
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
// Here field(x) is uint64(len(x)) followed by x, and all integers are little endian. agent contains
// the task's agent overrides as canonical JSON: no spaces, keys sorted by their bytes, and numbers
// as they were written. For null and {}, agent is empty. Other fields of the task have no effect.
// For a Recorded task, the hashed value is
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

// SampleKey returns the key of a sample in the dataset and the journal: its GroupID, a hyphen, and
// the index in decimal. A run collects each key once.
func SampleKey(t *Task, index int) string {
	return sampleKey(GroupID(t), index)
}

func sampleKey(group string, index int) string {
	return group + "-" + strconv.Itoa(index)
}

// RolloutID returns the id of one attempt: the sample key, a slash, and the number of the attempt.
func RolloutID(key string, attempt int) string {
	return key + "/" + strconv.Itoa(attempt)
}

// canonical returns the canonical form of a JSON value. Invalid JSON, which the task reader
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
