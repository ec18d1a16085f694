package store

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rollout-rl/rollout/collector/session"
)

// readRecord decodes the file of a session. If sealed is true, the file must be complete and match
// its digest.
func readRecord(r io.ReaderAt, size int64, id string, sealed bool) (*session.Record, error) {
	var d decoder
	s := scan{id: id, text: d.text, call: d.call, delivered: d.delivered}
	if err := s.file(r, size); err != nil {
		return nil, err
	}
	rec, err := d.record()
	switch {
	case err != nil:
	case s.head == nil:
		err = errNoHead
	case sealed && (s.end == nil || s.torn):
		err = errors.New("the file ends too early")
	}
	if err != nil {
		return nil, damaged(id, err)
	}
	rec.ID, rec.Head, rec.End = id, *s.head, s.end
	return rec, nil
}

// openFile opens the file of a session for reading and returns its size. If there is no such file, the
// error wraps ErrUnknown.
func openFile(path, id string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err == nil {
		var info os.FileInfo
		if info, err = f.Stat(); err == nil {
			return f, info.Size(), nil
		}
		_ = f.Close() // read only
	}
	if errors.Is(err, os.ErrNotExist) {
		err = ErrUnknown
	}
	return nil, 0, fmt.Errorf("session %s: %w", id, err)
}

func readFile(path, id string) (*session.Record, error) {
	f, size, err := openFile(path, id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	return readRecord(f, size, id, true)
}

// Read returns a session, sealed or open. It blocks until the file is read. If there is no session
// with this id, the error wraps ErrUnknown. If the file is damaged, the error wraps ErrDamaged: no
// part of a damaged session is returned. The caller owns the record.
func (s *Store) Read(id string) (*session.Record, error) {
	if name, ok := s.sealedName(id); ok {
		return readFile(s.sealedPath(name), id)
	}
	s.mu.Lock()
	x := s.sessions[id]
	s.mu.Unlock()
	if x == nil {
		return nil, fmt.Errorf("session %s: %w", id, ErrUnknown)
	}
	return x.read()
}

func (x *Session) read() (*session.Record, error) {
	x.mu.Lock()
	err := x.load()
	phase, size, path := x.phase, x.size, x.path
	var f *os.File
	if err == nil && phase != phaseSealed {
		f, err = os.Open(path)
	}
	x.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if phase == phaseSealed {
		return x.store.Read(x.id)
	}
	defer func() { _ = f.Close() }() // read only
	return readRecord(f, size, x.id, false)
}
