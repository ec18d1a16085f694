package collector

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// A Task says what to do. It does not change after it was read.
type Task struct {
	// ID is unique among the tasks of a run.
	ID string
	// Messages are the user messages, sent one after the other; at least one, or none where
	// Recorded is not nil.
	Messages []string
	// Recorded, if not nil, names a server run that another program drove and that has ended.
	// The one sample of such a task is read from what the server keeps of that run: no agent
	// is made, nothing is sent. ID is the id of the server run.
	Recorded *Recorded
	// Answer is what scorers compare the output with, or nil.
	Answer *string
	// Metadata goes to the rows unchanged: a JSON value, or nil.
	Metadata json.RawMessage
	// Samples overrides Config.Samples; 0 does not.
	Samples int
	// Agent overrides parts of the agent of the run: a JSON object, or nil.
	Agent json.RawMessage
	// Deadline is when the samples that have no reply yet are cut, so that the group is
	// whole: each has a failure row with class censored, also those that have not begun. Zero:
	// never.
	Deadline time.Time
	// Within is the time until the Deadline of a task that was given one so, counted from the
	// moment when a run accepts it. Whoever accepts it sets Deadline: a Collector looks at that
	// alone.
	Within time.Duration
	// Source and Line are where the task was read, for messages to people.
	Source string
	Line   int
}

// A Recorded names a server run by the server that keeps it.
type Recorded struct {
	// Server is the base URL under which the server run was found. It is part of the sample
	// key, and of nothing else: the server may be reached under another one later.
	Server string
	// Run is the id of the server run.
	Run string
}

// bytes returns about how much memory the task takes.
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
	// Key is the sample key. Index is the repetition within the group, which has GroupSize.
	Key              string
	Index, GroupSize int
	// N counts attempts from 1, over all processes of a run.
	N int
	// Kind is why it is made.
	Kind Kind
	// RunID is the id of this run of the collector.
	RunID string
	// ServerRun, if not nil, must be called with each server run that the attempt starts, as
	// soon as its id is known. It does not block.
	ServerRun func(id string)
	// Away is closed when the server is taken to be down and another one can make the
	// sample: whoever waits for the server to be back gives up then. Nil: never.
	Away <-chan struct{}
}

// A Kind is why an attempt is made. Its name is a metric label.
type Kind uint8

// The kinds. A retry that an earlier process left to do is an infra_retry, unless the
// sample failed by its data.
const (
	KindFirst      Kind = iota // the first of its sample
	KindInfraRetry             // after a failure of the infrastructure
	KindDataRetry              // after a failure of the data: a re-roll
	KindReattach               // takes over an attempt of an earlier process
)

var kindNames = [...]string{"first", "infra_retry", "data_retry", "reattach"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Kinds lists every kind of attempt.
func Kinds() []Kind { return []Kind{KindFirst, KindInfraRetry, KindDataRetry, KindReattach} }

// GroupID names the samples of one task: the first 16 bytes, in hexadecimal, of
// the SHA-256 of
//
//	field("rollout sample 1") field(id) uint64(len(messages)) field(message)… field(agent)
//
// where field(x) is uint64(len(x)) x, all integers are little endian, and agent is
// the task's agent overrides as canonical JSON: no spaces, keys sorted by their
// bytes, numbers as they were written, and nothing at all for null and {}.
//
// So neither the order of the tasks, nor the answer, the metadata or the number of
// samples is part of it. Of a task that is Recorded it is the SHA-256 of
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

// SampleKey is the identity of one sample of the task, by which nothing is made twice: its
// GroupID, a hyphen, and the index in decimal. Whoever has the tasks finds a sample in a
// dataset or a journal by it.
func SampleKey(t *Task, index int) string {
	return sampleKey(GroupID(t), index)
}

func sampleKey(group string, index int) string {
	return group + "-" + strconv.Itoa(index)
}

// RolloutID names one attempt at a sample: the sample key, a slash, and the number
// of the attempt.
func RolloutID(key string, attempt int) string {
	return key + "/" + strconv.Itoa(attempt)
}

// canonical returns the canonical form of a JSON value. It returns what is not JSON
// unchanged: whoever reads tasks has refused it before.
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
