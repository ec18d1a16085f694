package store

import (
	"errors"
	"fmt"
	"os"

	"github.com/rollout-rl/rollout/collector/session"
)

// recover reads the file of a session of an earlier process. If the file contains the end of the
// session, recover finishes the sealing. If it does not contain a whole head, no client knows the
// session, and recover removes the file.
func (x *Session) recover() {
	x.mu.Lock()
	defer x.mu.Unlock()
	used := x.used
	err := x.load()
	if err == nil {
		err = x.sync()
	}
	if errors.Is(err, errNoHead) {
		x.phase = phaseGone
		delete(x.store.sessions, x.id)
		err = os.Remove(x.path)
	}
	if err != nil {
		x.store.cfg.Log.Warn("cannot read an open session", "file", x.path, "error", err)
	}
	x.state, x.used = nil, used // the state is needed only if the session continues
}

var errNoHead = errors.New("the file has no head")

// load reads the file of an open session, unless its state is in memory. It removes the torn end
// that a crash can leave. The caller must hold x.mu.
func (x *Session) load() error {
	switch {
	case x.phase == phaseGone:
		return x.err(ErrUnknown)
	case x.failed != nil:
		return x.failed
	case x.state != nil || x.phase == phaseSealed || x.end != nil:
		return nil
	}
	f, err := os.OpenFile(x.path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return x.err(ErrUnknown)
	}
	if err != nil {
		return x.store.failed(err)
	}
	if err := x.loadFrom(f); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, ErrDamaged) {
			x.failed = err
			x.store.mu.Lock()
			x.store.stats.Damaged++
			x.store.mu.Unlock()
		}
		return err
	}
	if x.file != nil {
		_ = x.file.Close() // the bytes are synced through f
	}
	x.file = f
	if x.end != nil { // an earlier process was killed while it sealed the session
		if err := x.ended(); err != nil {
			return err
		}
		x.phase = phaseEnding
		return x.place()
	}
	if x.store.markDirty(x) {
		return nil
	}
	return x.sync()
}

func (x *Session) loadFrom(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if x.size >= 0 {
		size = min(size, x.size) // the rest is a failed write
	}
	st, sc := newState(), scan{id: x.id}
	texts, begun := 0, false
	var end *session.End
	err = sc.each(f, size, func(payload []byte) error {
		op, p := opOf(payload)
		switch {
		case begun == (op == opHead):
			return errors.New("the file must contain one head, at its start")
		case end != nil:
			return errors.New("data follows the end of the session")
		}
		var err error
		switch op {
		case opHead:
			begun = true
			_, _, err = decodeHead(p, x.id)
		case opText:
			st.texts[keyOf(payload[1:])] = texts
			texts++
		case opCall:
			x.last = max(x.last, numberOf(p))
			err = p.Err()
			st.calls++
		case opEnd:
			end, err = decodeEnd(p)
			if err == nil && (end.Calls != st.calls || end.Digest != st.sum.String()) {
				err = errors.New("the end of the session does not match its calls")
			}
		default:
			err = fmt.Errorf("unknown kind %d", op)
		}
		st.sum.add(payload)
		return err
	})
	if err != nil {
		return err
	}
	if !begun {
		return x.err(errNoHead)
	}
	if x.size >= 0 && sc.whole != x.size {
		return damaged(x.id, fmt.Errorf("the file ends at offset %d, but %d bytes were written", sc.whole, x.size))
	}
	if len(st.texts) != texts {
		return damaged(x.id, errors.New("the file contains the same text twice"))
	}
	if sc.whole < info.Size() {
		if err := x.store.truncate(f, sc.whole); err != nil {
			return x.store.failed(err)
		}
	}
	x.size, x.durable, x.torn = sc.whole, min(x.durable, sc.whole), false
	x.state, x.end = st, end
	return nil
}
