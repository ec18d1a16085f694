package store

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink/frame"
)

// A Session is one session of a Store. Its methods are safe for concurrent use. A Session is valid
// until the store is closed.
type Session struct {
	store *Store
	id    string
	path  string // the file while the session is open

	mu      sync.Mutex
	phase   phase
	failed  error // the file is damaged or a sync failed: nothing more can be written
	refusal refusal
	owed    []int // the numbers of the delivered calls whose delivery must still be written
	state   *state
	used    time.Time // the time of the last use
	last    int       // the highest number that was given to a call
	flights map[*Admission]struct{}
	drained chan struct{} // set when the session is being sealed; closed when no call is in flight
	ending  string        // the body of the end, if the session is being sealed
	end     *session.End  // the end, once it is written

	file    *os.File // open while the file has bytes that are not synced
	size    int64    // the length of the file up to the end of the last whole frame, or -1 if unknown
	durable int64    // how many of these bytes are synced
	torn    bool     // the file can contain more than size bytes; the rest must be removed

	syncing sync.Mutex // held during a sync of the file; locked after mu
	dropped error      // the first error of a sync; protected by syncing
}

type phase uint8

const (
	phaseOpen phase = iota
	phaseEnding
	phaseSealed
	phaseGone // the session was removed
)

// A refusal is the last failure to add a call, until the call succeeds or a later one does.
type refusal struct {
	err  error      // nil if there is none
	by   *Admission // the call, or nil if it was not admitted
	last int        // the highest number then: a call with a higher number can be the client's retry
}

// A state contains what the next write to the file needs. It is dropped when the session has been
// idle for a while, and made again from the file.
type state struct {
	texts map[textKey]int // the indexes of the texts in the file
	calls int             // the number of calls in the file
	enc   *tap.CallEncoder
	sum   digest
}

// A textKey is the beginning of the SHA-256 of a text. The text itself is only in the file.
type textKey [16]byte

func keyOf(text []byte) textKey {
	sum := sha256.Sum256(text)
	return textKey(sum[:16])
}

// shareTokens is the maximum number of tokens that an open session keeps in memory, so that the
// prompts in the file can share the tokens of earlier calls.
const shareTokens = 256 << 10

func newState() *state { return &state{texts: map[textKey]int{}, sum: newDigest()} }

// ID returns the id of the session. It is not a secret.
func (x *Session) ID() string { return x.id }

// An Admission is the permission for one call of a session. The caller must call Done when the call
// ends, whether it was added or not.
type Admission struct {
	session *Session
	cancel  func(error)
	number  int
	// These fields are protected by session.mu.
	added, delivered bool
}

// Admit admits a call and assigns its number. If the session is sealed or is being sealed, the error
// wraps ErrSealed. If the session is then sealed with wait=false, the store calls cancel, which must
// not block, with an error that wraps ErrSealed. cancel can be nil. Admit blocks while the file is
// being written, and if the session was idle, until the file is read.
func (x *Session) Admit(cancel func(error)) (*Admission, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.ready(); err != nil {
		x.refusal = refusal{err, nil, x.last}
		return nil, err
	}
	if x.phase != phaseOpen {
		return nil, x.err(ErrSealed)
	}
	x.last++
	a := &Admission{session: x, cancel: cancel, number: x.last}
	x.flights[a] = struct{}{}
	return a, nil
}

// Number returns the number of the call in its session.
func (a *Admission) Number() int { return a.number }

// Add adds the call to the session's file. messages and tools are the JSON texts in the request:
// messages is nil if the request had no list of messages, and tools is nil if it had no list of
// tools. Add ignores the fields Number, Messages, Tools and Delivered of c. It keeps no reference to
// its arguments and does not modify them.
//
// When Add returns nil, the call survives a crash of the process. After about SyncEvery it survives
// a power failure. If the file cannot be written, the error names the folder, the file does not
// contain the call, and Add can be repeated. If a sync fails, the error names the folder, too, but the
// file can contain the call, and the session cannot continue in this process. An Admission can add one
// call. If the session was sealed meanwhile, the error wraps ErrSealed. If the call is larger than
// 64 MiB, the error wraps ErrTooLarge.
func (a *Admission) Add(c *session.Call, messages []json.RawMessage, tools json.RawMessage) error {
	x := a.session
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.ready(); err != nil {
		x.refusal = refusal{err, a, x.last}
		return err
	}
	_, flying := x.flights[a]
	switch {
	case x.phase == phaseSealed, x.end != nil: // nothing may follow the end in the file
		return x.err(ErrSealed)
	case a.added || !flying:
		return x.err(fmt.Errorf("call %d was already added or has ended", a.number))
	}
	err := x.deliver()
	if err == nil {
		err = x.add(c, a.number, messages, tools)
	}
	if err != nil {
		if !errors.Is(err, ErrTooLarge) { // otherwise it is the client's fault
			x.refusal = refusal{err, a, x.last}
		}
		return err
	}
	if a == x.refusal.by || a.number > x.refusal.last {
		x.refusal = refusal{}
	}
	a.added = true
	x.store.mu.Lock()
	x.store.stats.Calls++
	x.store.mu.Unlock()
	return nil
}

// Delivered records that the whole answer of the call was written to the client. The call must have
// been added, and Delivered can be called once. The record is as durable as the call. If the file
// cannot be written, the error names the folder, and the store writes the record later, at the latest
// before the end of the session. If the process is killed before, the call counts as not delivered.
func (a *Admission) Delivered() error {
	x := a.session
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.ready(); err != nil {
		return err
	}
	switch {
	case x.phase == phaseSealed, x.end != nil:
		return x.err(ErrSealed)
	case !a.added || a.delivered:
		return x.err(fmt.Errorf("call %d was not added, or was already delivered", a.number))
	}
	a.delivered = true
	x.owed = append(x.owed, a.number)
	return x.deliver()
}

// deliver writes the deliveries that are not yet in the file. The caller must hold x.mu.
func (x *Session) deliver() error {
	if len(x.owed) == 0 {
		return nil
	}
	if err := x.load(); err != nil {
		return err
	}
	for len(x.owed) > 0 {
		payload := deliveredPayload(x.owed[0])
		if err := x.write(func(w *frame.Writer) error { return w.Write(payload) }); err != nil {
			return err
		}
		x.state.sum.add(payload)
		x.owed = slices.Delete(x.owed, 0, 1)
	}
	return nil
}

func (x *Session) add(c *session.Call, number int, messages []json.RawMessage, tools json.RawMessage) error {
	size := tap.PayloadBound(&c.Call) + int64(5*len(messages)+len(c.Answer)+len(c.Model)+len(c.Unread)+len(c.Agent)+len(c.ParentAgent)+64)
	for _, text := range append(slices.Clip(messages), tools) {
		size = max(size, int64(len(text))+1)
	}
	if size > maxPayload {
		return x.err(fmt.Errorf("call %d: %w", number, ErrTooLarge))
	}
	st := x.state
	var fresh [][]byte // the texts that are not yet in the file
	index := func(text []byte) int {
		key := keyOf(text)
		i, ok := st.texts[key]
		if !ok {
			i = len(st.texts)
			st.texts[key] = i
			fresh = append(fresh, text)
		}
		return i
	}
	recorded := *c
	recorded.Number, recorded.Messages, recorded.Tools = number, nil, -1
	if messages != nil {
		recorded.Messages = make([]int, 0, len(messages))
	}
	for _, text := range messages {
		recorded.Messages = append(recorded.Messages, index(text))
	}
	if tools != nil {
		recorded.Tools = index(tools)
	}
	if st.enc == nil {
		st.enc = tap.NewCallEncoder(uint64(st.calls), shareTokens) //nolint:gosec // not negative
	}
	var payload []byte
	err := x.write(func(w *frame.Writer) error {
		for _, text := range fresh {
			if err := w.End(append(append(w.Begin(), opText), text...)); err != nil {
				return err
			}
		}
		b := w.Begin()
		head := len(b)
		b = st.enc.Append(appendFields(b, &recorded), &c.Call, time.Now())
		payload = b[head:]
		return w.End(b)
	})
	if err != nil {
		st.enc = nil // it refers to a call that is not in the file
		for _, text := range fresh {
			delete(st.texts, keyOf(text))
		}
		return err
	}
	for _, text := range fresh {
		st.sum.add([]byte{opText}, text)
	}
	st.sum.add(payload)
	st.calls++
	return nil
}

// Refused returns the error because of which the last call could not be added, or nil. The error stays
// until that call is added, or a call that was admitted later, which can be the client's retry. While
// it stays, the client can have given up although it is not at fault, for example after a full disk. A
// call that is too large is the client's fault and not such an error.
func (x *Session) Refused() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.refusal.err
}

// Done ends the call. After Done, the call can no longer be added. More calls of Done do nothing.
func (a *Admission) Done() {
	x := a.session
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.flights, a)
	x.used = time.Now()
	x.drain()
}

// drain reports that no call is in flight. The caller must hold x.mu.
func (x *Session) drain() {
	if x.drained == nil || len(x.flights) > 0 {
		return
	}
	select {
	case <-x.drained:
	default:
		close(x.drained)
	}
}

// ready checks that the session can be used, and loads its state. The caller must hold x.mu.
func (x *Session) ready() error {
	if x.store.isClosed() {
		return x.err(ErrClosed)
	}
	x.used = time.Now()
	return x.load()
}

func (x *Session) err(err error) error { return fmt.Errorf("session %s: %w", x.id, err) }
