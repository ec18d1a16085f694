package store

import (
	"errors"
	"fmt"
	"os"

	"github.com/rollout-rl/rollout/sink/frame"
)

// recover reads the file of a session of an earlier process. If the file contains the end of the
// session, recover finishes the sealing. If it does not contain a whole head, no client knows the
// session, and recover removes the file.
func (x *Session) recover() {
	x.mu.Lock()
	defer x.mu.Unlock()
	used := x.used
	err := x.load()
	if err == nil && x.phase == phaseOpen && x.unsynced() {
		if err = x.sync(); err == nil {
			err = x.mark() // so that the next process does not write the same part again
		}
	}
	x.close()
	if errors.Is(err, errNoHead) {
		x.phase = phaseGone
		delete(x.store.sessions, x.id)
		err = x.store.disk.remove(x.path)
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
		_ = f.Close() // nothing new was written
		if errors.Is(err, ErrDamaged) {
			x.failed = err
			x.store.mu.Lock()
			x.store.stats.Damaged++
			x.store.mu.Unlock()
		}
		return err
	}
	x.file = f
	if x.end != nil { // an earlier process was killed while it sealed the session
		x.ended()
		x.phase = phaseEnding
		return x.place()
	}
	switch {
	case !x.unsynced():
		x.close()
		return nil
	case x.store.markDirty(x):
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
	st := newState()
	sc := scan{id: x.id, text: st.add, call: func(call *frame.Payload) error {
		x.last = max(x.last, numberOf(call))
		return call.Err()
	}, delivered: func(int) error { return nil }}
	if err := sc.file(f, size); err != nil {
		return err
	}
	if sc.head == nil {
		return x.err(errNoHead)
	}
	if x.size >= 0 && sc.whole != x.size {
		return damaged(x.id, fmt.Errorf("the file ends at offset %d, but %d bytes were written", sc.whole, x.size))
	}
	if sc.whole < info.Size() {
		if err := x.store.disk.truncate(f, sc.whole); err != nil {
			return x.store.failed(err)
		}
	}
	if x.size < 0 && sc.whole-sc.durable > frame.Overhead {
		if err := x.rewrite(f, sc.durable, sc.whole); err != nil {
			return x.store.failed(err)
		}
	}
	x.size, x.durable, x.torn = sc.whole, max(sc.durable, min(x.durable, sc.whole)), false
	st.calls, st.sum = sc.calls, sc.sum
	x.state, x.end = st, sc.end
	return nil
}

// unsynced reports whether a sync is needed. A mark alone needs no sync, and no frame is as short.
func (x *Session) unsynced() bool { return x.size-x.durable > frame.Overhead }

// rewrite writes a part of the file again. If a sync failed in an earlier process, the system can have
// the part in memory and have given up writing it to the disk. Without rewrite, the next sync would
// succeed and the part would still not be durable.
func (x *Session) rewrite(f *os.File, from, to int64) error {
	var buf [64 << 10]byte
	for from < to {
		part := buf[:min(to-from, int64(len(buf)))]
		if _, err := f.ReadAt(part, from); err != nil {
			return err
		}
		if _, err := x.store.disk.write(f, part, from); err != nil {
			return err
		}
		from += int64(len(part))
	}
	return nil
}

// add records the next text in the file.
func (st *state) add(text []byte) error {
	key := keyOf(text)
	if _, ok := st.texts[key]; ok {
		return errors.New("the file contains the same text twice")
	}
	st.texts[key] = len(st.texts)
	return nil
}
