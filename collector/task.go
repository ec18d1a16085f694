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

// A Task is one input of a run: user messages to send, or a finished rollout to read. It does not change
// after it has been read.
type Task struct {
	// ID is unique among the tasks of a run.
	ID string
	// Messages contains the user messages, to be sent one after another. If Recorded is a
	// server run, Messages must be empty. If it is a session, Messages contains the prompt that the
	// program stated, if any.
	Messages []string
	// Recorded, if not nil, identifies a finished rollout that another program drove: a server run
	// or a session of a tap. The task then has a single sample, read from the record of the
	// server or the tap. No agent is created and no message is sent. ID is the id of the server run
	// or session.
	Recorded *Recorded
	// Answer is the reference answer with which scorers compare the output, or nil.
	Answer *string
	// Metadata is a JSON value that is copied to the rows unchanged, or nil.
	Metadata json.RawMessage
	// Samples, if not 0, overrides Config.Samples.
	Samples int
	// Agent is a JSON object that overrides settings of the run's agent, or nil.
	Agent json.RawMessage
	// Deadline is the time at which samples that have no reply yet are cut, so that the group
	// becomes whole. Each cut sample gets a failure row with class censored, even if the sample has
	// not yet started. Zero means no deadline.
	Deadline time.Time
	// Within is the time between the acceptance of the task and its deadline. The caller computes
	// Deadline from Within. A Collector ignores Within.
	Within time.Duration
	// Source and Line are the file and line from which the task was read. Messages show them.
	Source string
	Line   int
}

// A Recorded identifies a server run or a session.
type Recorded struct {
	// Server is the base URL of the server on which the run was found. Only the sample key uses
	// this URL, because the URL of the server can change later. It is empty for a session, whose id
	// is unique everywhere.
	Server string
	Run    string
	// TaskID is the task that the program stated for a session. It replaces the task's ID in the
	// column task_id, unless it is empty.
	TaskID string
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
	// N is the number of this attempt at the sample. It starts at 1 and counts the attempts of all
	// processes of the run.
	N    int
	Kind Kind
	// RunID is Config.RunID.
	RunID string
	// ServerRun, if not nil, must be called with the id of each server run that the attempt starts,
	// as soon as the id is known. It does not block.
	ServerRun func(id string)
	// Away is closed when the server is down and another server can take the sample. A Backend must
	// then stop waiting for the server that is down. If the sample cannot move, Away is nil.
	Away <-chan struct{}
}

// A Kind is the reason for an attempt. Its name is a metric label.
type Kind uint8

// These are the kinds of attempts. If this process makes a retry for an earlier process, the kind
// is KindInfraRetry, unless the sample failed because of the policy.
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
// as they were written. If the overrides are null or {}, agent is empty. Other fields of the task
// do not affect the id. For a Recorded task, the hashed value is
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

// canonical returns the canonical form of a JSON value. It returns invalid JSON unchanged; the task
// reader rejects such tasks.
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
