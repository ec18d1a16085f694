package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const extension = ".session"

// An Entry describes a sealed session.
type Entry struct {
	// Name is the position of the session in the order of sealing. A higher name was sealed later.
	// Names are compared as strings.
	Name string `json:"name"`
	// ID is the id of the session.
	ID string `json:"id"`
	// Bytes is the size of the session's file.
	Bytes int64 `json:"bytes"`
	// About is nil if the session must be read to know it: because the head or the end of the session
	// is larger than 1 MiB, or the file is damaged.
	About *About `json:"about,omitempty"`
}

// Lengths of the parts of a name.
const (
	numberLen = 19 // enough for every positive int64
	idLen     = 32
)

// nameOf returns the name of the n-th sealed session. n is at least the time of the sealing in
// nanoseconds since 1970.
func nameOf(n int64, id string) string { return fmt.Sprintf("%0*d-%s", numberLen, n, id) }

// isName reports whether a text is the name of a sealed session.
func isName(name string) bool {
	return len(name) == numberLen+1+idLen && name[numberLen] == '-' && isID(idIn(name)) && numberIn(name) > 0
}

// numberIn returns the number in a name, or 0 if the name has no valid number.
func numberIn(name string) int64 {
	number, _, _ := strings.Cut(name, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || len(number) != numberLen {
		return 0
	}
	return n
}

// idIn returns the id in the name of a sealed session.
func idIn(name string) string { return name[numberLen+1:] }

func isID(id string) bool {
	return len(id) == idLen && strings.Trim(id, "0123456789abcdef") == ""
}

// idOf returns the id in the name of an open session's file.
func idOf(file string) (string, bool) {
	id, ok := strings.CutSuffix(file, extension)
	return id, ok && isID(id)
}

func sealedPath(dir, name string) string { return filepath.Join(dir, sealedFolder, name+extension) }

func (s *Store) sealedPath(name string) string { return sealedPath(s.cfg.Dir, name) }

func (s *Store) sealedName(id string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, ok := s.sealed[id]
	return name, ok
}

// list returns the names of all sealed sessions in a folder that are higher than after, sorted.
//
// A folder is not read at one moment: if two sessions are sealed meanwhile, a reading can contain
// the later one and lack the earlier one, which a cursor would then skip forever. So list reads the
// folder twice and returns the names up to the highest name of the first reading. All of them existed
// before the second reading.
func list(dir, after string) ([]string, error) {
	return listTwice(func() ([]string, error) { return readNames(dir, after) })
}

func listTwice(read func() ([]string, error)) ([]string, error) {
	first, err := read()
	if err != nil || len(first) == 0 {
		return nil, err
	}
	second, err := read()
	if err != nil {
		return nil, err
	}
	highest := first[len(first)-1]
	return slices.DeleteFunc(second, func(name string) bool { return name > highest }), nil
}

// readNames reads the folder of sealed sessions once. It returns the names that are higher than after,
// sorted. It skips other files.
func readNames(dir, after string) ([]string, error) {
	files, err := os.ReadDir(filepath.Join(dir, sealedFolder)) // sorted by name
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), extension); ok && name > after && isName(name) && f.Type().IsRegular() {
			names = append(names, name)
		}
	}
	return names, nil
}

// Sealed returns sealed sessions, oldest first, at most 10,000. There can be more: the next call with
// the last name as after returns them. If after is not empty, Sealed returns only sessions with higher
// names. A session that is sealed later always has a higher name, even after a restart. A power failure
// during the sealing can give a session a second, higher name, so the caller must recognize a session by
// its id. Sealed reads the head and the end of each session that it returns.
func (s *Store) Sealed(after string) ([]Entry, error) {
	entries, err := sealed(s.cfg.Dir, after)
	if err != nil {
		err = fmt.Errorf("session store: %w", err)
	}
	return entries, err
}

// IsSealed reports whether there is a sealed session with this id. It reads no file.
func (s *Store) IsSealed(id string) bool {
	_, ok := s.sealedName(id)
	return ok
}

// Wait blocks until there is a sealed session with a name higher than after. It returns early with
// an error if ctx ends or the store is closed.
func (s *Store) Wait(ctx context.Context, after string) error {
	for {
		s.mu.Lock()
		news, closed := s.news, s.closed
		s.mu.Unlock()
		names, err := list(s.cfg.Dir, after)
		if err != nil {
			return fmt.Errorf("session store: %w", err)
		}
		if len(names) > 0 {
			return nil
		}
		if closed {
			return ErrClosed
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Remove removes a sealed session. If there is no sealed session with this id, the error wraps
// ErrUnknown. The key of the session is then unknown, too. A power failure can undo Remove.
func (s *Store) Remove(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, ok := s.sealed[id]
	if !ok {
		return fmt.Errorf("session %s: %w", id, ErrUnknown)
	}
	return s.removeSealed(name)
}

// removeSealed removes the sealed session with this name. The caller must hold s.mu.
func (s *Store) removeSealed(name string) error {
	id := idIn(name)
	if err := s.disk.remove(s.sealedPath(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("session %s: %w", id, err)
	}
	if s.sealed[id] == name {
		delete(s.sealed, id)
	}
	return nil
}

// Clear removes every session, open or sealed, except those for which keep returns true. It is for a
// store whose agents are all dead, because the keys of the removed sessions become unknown. Clear
// returns the number of removed sessions. It skips an open session with calls in flight.
func (s *Store) Clear(keep func(id string) bool) (removed int, err error) {
	s.mu.Lock()
	sealed, open := slices.Collect(maps.Keys(s.sealed)), slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	var errs []error
	for _, id := range sealed {
		if keep(id) {
			continue
		}
		if err := s.Remove(id); err != nil && !errors.Is(err, ErrUnknown) {
			errs = append(errs, err)
			continue
		}
		removed++
	}
	for _, x := range open {
		if keep(x.id) {
			continue
		}
		ok, err := x.remove()
		if ok {
			removed++
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// removable reports whether the session is not sealed and has no call in flight. The caller must hold
// x.mu.
func (x *Session) removable() bool { return x.phase <= phaseEnding && len(x.flights) == 0 }

// remove removes an open session without calls in flight. It reports whether it did.
func (x *Session) remove() (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.removable() {
		return false, nil
	}
	err := x.discard()
	return err == nil, err
}

// discard removes an open session. The caller must hold x.mu.
func (x *Session) discard() error {
	if err := x.store.disk.remove(x.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return x.err(err)
	}
	x.close()
	x.phase, x.state = phaseGone, nil
	s := x.store
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, x.id)
	return nil
}

// writeLast stores the highest number of a name in the lock file. The next process then assigns
// higher numbers even if all sealed sessions have been removed and the clock was set back.
func writeLast(lock *os.File, n int64) {
	_, _ = lock.WriteAt(fmt.Appendf(nil, "%0*d\n", numberLen, n), 0) // the clock is enough in almost all cases
}

func readLast(lock *os.File) int64 {
	var b [numberLen]byte
	if _, err := lock.ReadAt(b[:], 0); err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(b[:]), 10, 64)
	if err != nil || n < 0 || n > time.Now().Add(maxAhead).UnixNano() {
		return 0
	}
	return n
}

// maxAhead limits the effect of a damaged lock file.
const maxAhead = 10 * 365 * 24 * time.Hour
