package collector

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
)

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
// samples is part of it.
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
	field("rollout sample 1")
	field(t.ID)
	number(len(t.Messages))
	for _, m := range t.Messages {
		field(m)
	}
	field(canonical(t.Agent))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// SampleKey is the identity of one sample of the task, for exactly-once: its
// GroupID, a hyphen, and the index in decimal.
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

// canonical is the canonical form of a JSON value. What is not JSON stands for
// itself: whoever reads tasks refuses it, and a key needs no second opinion.
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
