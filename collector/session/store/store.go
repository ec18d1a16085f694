package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink/frame"
)

// A Store keeps sessions in a folder. Its methods are safe for concurrent use.
type Store struct {
	cfg   Config
	disk  disk
	lock  *os.File
	quit  chan struct{} // closed by Close
	ended chan struct{} // closed when the store's goroutine has returned
	names nameSync

	begins sync.WaitGroup // the calls of Begin in progress

	mu       sync.Mutex
	closed   bool
	sessions map[string]*Session   // the open sessions by id
	sealed   map[string]string     // the names of the sealed sessions by id
	dirty    map[*Session]struct{} // the sessions whose files have bytes that are not synced
	last     int64                 // the highest number in a name that the store has assigned
	news     chan struct{}         // closed and replaced when a session is sealed
	stats    Stats
}

// Stats describes the folder of a Store and counts the work since it was opened.
type Stats struct {
	// Open and Sealed are the numbers of open and sealed sessions.
	Open, Sealed int
	// Begun and Calls count the sessions that began and the calls that were added.
	Begun, Calls int64
	// Removed counts the sessions that were removed because of MaxAge or MaxBytes.
	Removed int64
	// Damaged counts the damaged files that the store found.
	Damaged int64
	// Errors counts failed writes and syncs. Err is the last error, or nil after a successful write.
	Errors int64
	Err    error
}

// The folders of a store.
const (
	openFolder   = "open"
	sealedFolder = "sealed"
)

// Open opens the store in the folder cfg.Dir. It keeps the sessions of earlier processes: open
// sessions stay open, and sealed sessions stay sealed. Open blocks until it has read the files of
// all open sessions. A file that is damaged or cannot be read is logged and does not cause an error.
// If another process is writing to the folder, the error wraps ErrLocked. Open starts a goroutine.
// The caller must call Close to stop it.
func Open(cfg Config) (*Store, error) {
	s, err := openOn(osDisk(), cfg)
	if err != nil {
		return nil, fmt.Errorf("session store: %w", err)
	}
	go s.run()
	return s, nil
}

// openOn opens a store without its goroutine.
func openOn(d disk, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Store{
		cfg: cfg.withDefaults(), disk: d, quit: make(chan struct{}), ended: make(chan struct{}), news: make(chan struct{}),
		sessions: map[string]*Session{}, sealed: map[string]string{}, dirty: map[*Session]struct{}{},
	}
	return s, s.open()
}

func (s *Store) open() error {
	for _, folder := range []string{openFolder, sealedFolder} {
		if err := os.MkdirAll(filepath.Join(s.cfg.Dir, folder), 0o777); err != nil {
			return err
		}
	}
	lock, err := tap.LockFolder(s.cfg.Dir)
	if errors.Is(err, tap.ErrLocked) {
		err = fmt.Errorf("%s: %w", s.cfg.Dir, ErrLocked)
	}
	if err != nil {
		return err
	}
	s.lock = lock
	if err := s.recover(); err != nil {
		return errors.Join(err, lock.Close())
	}
	return nil
}

// recover finds the sessions of earlier processes.
func (s *Store) recover() error {
	s.last = readLast(s.lock)
	names, err := list(s.cfg.Dir, "")
	if err != nil {
		return err
	}
	for _, name := range names {
		s.sealed[idIn(name)] = name
		s.last = max(s.last, numberIn(name))
	}
	files, err := os.ReadDir(filepath.Join(s.cfg.Dir, openFolder))
	if err != nil {
		return err
	}
	for _, f := range files {
		id, ok := idOf(f.Name())
		if !ok || !f.Type().IsRegular() {
			continue
		}
		if _, ok := s.sealed[id]; ok {
			s.removeTwin(id)
			continue
		}
		x := s.newSession(id)
		x.size = -1
		if info, err := f.Info(); err == nil {
			x.used = info.ModTime()
		}
		s.sessions[id] = x
		x.recover()
	}
	s.names.changed.Store(true) // an earlier process can have been killed before it synced the names
	return s.syncNames()
}

// removeTwin removes the file in open/ of a sealed session. A power failure can leave both names of a
// file. Without removeTwin, the session would become open again when the sealed one is removed.
func (s *Store) removeTwin(id string) {
	path := s.newSession(id).path
	_, err := s.Read(id) // the sealed file must be whole
	if err == nil {
		err = s.disk.remove(path)
	}
	if err != nil {
		s.cfg.Log.Warn("cannot remove the open file of a sealed session", "file", path, "error", err)
	}
}

func (s *Store) newSession(id string) *Session {
	return &Session{
		store: s, id: id, used: time.Now(), flights: map[*Admission]struct{}{},
		path: filepath.Join(s.cfg.Dir, openFolder, id+extension),
	}
}

// Begin begins a session and returns its key. The key is not stored: the store only knows its id.
// If h.Began is zero, Begin sets it to the current time. Begin blocks until the file of the session
// is written. If it cannot be written, the error names the folder.
func (s *Store) Begin(h session.Head) (session.Key, error) {
	if h.Began.IsZero() {
		h.Began = time.Now().UTC()
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return "", ErrClosed
	}
	s.begins.Add(1)
	s.mu.Unlock()
	defer s.begins.Done()
	key := session.NewKey()
	x := s.newSession(key.ID())
	if err := x.create(h); err != nil {
		return "", fmt.Errorf("session store: begin: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[x.id] = x
	s.stats.Begun++
	return key, nil
}

// create creates the file of the session.
func (x *Session) create(h session.Head) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	head, err := headPayload(x.id, h)
	if err != nil {
		return err
	}
	if len(head) > maxPayload {
		return ErrTooLarge
	}
	f, err := x.store.disk.create(x.path, x.store.cfg.Mode)
	if err != nil {
		return x.store.failed(err)
	}
	x.store.names.changed.Store(true)
	x.file = f
	err = x.write(func(w *frame.Writer) error { return w.Write(head) })
	if err != nil {
		x.close()
		return errors.Join(err, x.store.disk.remove(x.path))
	}
	x.state = newState()
	x.state.sum.add(head)
	return nil
}

// Session returns the session that the key opens. The session can be open or sealed. If there is no
// such session, the error wraps ErrUnknown.
func (s *Store) Session(key session.Key) (*Session, error) {
	id := key.ID()
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.sessions[id]; x != nil {
		return x, nil
	}
	if _, ok := s.sealed[id]; ok {
		x := s.newSession(id)
		x.phase = phaseSealed
		return x, nil
	}
	return nil, fmt.Errorf("session %s: %w", id, ErrUnknown)
}

// Stats returns the current stats.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Open, st.Sealed = len(s.sessions), len(s.sealed)
	return st
}

// Close syncs all files and unlocks the folder. Open sessions stay open and continue when the store
// is opened again. Calls in flight can no longer be added. Close blocks until the files are synced.
func (s *Store) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	if !again {
		close(s.quit)
		close(s.news)
		s.news = make(chan struct{})
	}
	s.mu.Unlock()
	<-s.ended
	if again {
		return nil
	}
	err := s.syncAll()
	if err != nil {
		err = fmt.Errorf("session store: %w", err)
	}
	return errors.Join(err, s.lock.Close())
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// failed counts a failed write or sync. It returns the error with the name of the folder.
func (s *Store) failed(err error) error {
	s.mu.Lock()
	first := s.stats.Err == nil
	s.stats.Errors++
	s.stats.Err = fmt.Errorf("cannot write to the folder of sessions %s: %w", s.cfg.Dir, err)
	err = s.stats.Err
	s.mu.Unlock()
	if first {
		s.cfg.Log.Warn("cannot write to the folder of sessions", "dir", s.cfg.Dir, "error", err)
	}
	return err
}

// wrote records that a write succeeded.
func (s *Store) wrote() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.Err != nil {
		s.cfg.Log.Info("the folder of sessions is writable again", "dir", s.cfg.Dir)
	}
	s.stats.Err = nil
}
