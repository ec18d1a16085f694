package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
)

// TestScan proves that a file whose payloads do not fit together is neither read nor continued.
func TestScan(t *testing.T) {
	t.Parallel()
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	id := newKeyID()
	head, _ := headPayload(id, session.Head{})
	other, _ := headPayload(newKeyID(), session.Head{})
	text := append([]byte{opText}, "{}"...)
	end := func(calls int, before ...[]byte) []byte {
		sum := newDigest()
		for _, p := range before {
			sum.add(p)
		}
		return endPayload(session.End{Calls: calls, Digest: sum.String()})
	}
	for _, c := range []struct {
		name, want string // want is in the error of readRecord and, unless load is set, in the error of load
		payloads   [][]byte
		load       string
	}{
		{"nothing", "the file has no head", nil, ""},
		{"no head", "one head, at its start", [][]byte{text}, ""},
		{"two heads", "one head, at its start", [][]byte{head, head}, ""},
		{"another session", "the file belongs to the session", [][]byte{other}, ""},
		{"a cut head", "unexpected end", [][]byte{head[:9]}, ""},
		{"an invalid head", "invalid character", [][]byte{append(bytes.Clone(head), '!')}, ""},
		{"an unknown kind", "unknown kind 9", [][]byte{head, {9}}, ""},
		{"an empty payload", "unknown kind 0", [][]byte{head, {}}, ""},
		{"an invalid call", "invalid call number 0", [][]byte{head, {opCall, 0}}, ""},
		{"the delivery of an unknown call", "call 1 is not in the file", [][]byte{head, {opDelivered, 1}}, "<nil>"},
		{"an invalid delivery", "invalid call number 0", [][]byte{head, {opDelivered, 0}}, ""},
		{"a delivery and more", "1 extra bytes", [][]byte{head, {opDelivered, 1, 2}}, ""},
		{"an invalid end", "unexpected end of JSON", [][]byte{head, {opEnd}}, ""},
		{"more calls", "contains 0 calls, but the end of the session states 1", [][]byte{head, end(1, head)}, ""},
		{"another digest", "the digest", [][]byte{head, text, end(0, head)}, ""},
		{"no end", "the file ends too early", [][]byte{head, text}, "<nil>"},
		{"after the end", "data follows the end", [][]byte{head, end(0, head), text}, ""},
		{"the same text twice", "the file ends too early", [][]byte{head, text, text}, "the same text twice"},
	} {
		b := fileOf(t, id, c.payloads...)
		if rec, err := parse(b, id); rec != nil || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v", c.name, rec, err)
		}
		x := s.newSession(id)
		x.size = -1
		if err := os.WriteFile(x.path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		x.mu.Lock()
		err := x.load()
		x.close()
		x.mu.Unlock()
		if want := cmp.Or(c.load, c.want); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: load returns %v", c.name, err)
		}
	}
}
