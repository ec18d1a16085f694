package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/wait"
)

// A Source reads the sealed sessions of a store that another process writes to. A Source modifies
// nothing. The methods are safe for concurrent use. They block and return the cause if ctx ends.
type Source interface {
	// Sealed returns sealed sessions with names higher than after, in the order they were
	// sealed. There can be more sessions than it returns. See [Store.Sealed].
	Sealed(ctx context.Context, after string) ([]Entry, error)
	// Wait blocks until there is a sealed session with a name higher than after.
	Wait(ctx context.Context, after string) error
	// Read returns a sealed session. If it was removed or never existed, the error wraps ErrUnknown.
	// If its file is damaged, the error wraps ErrDamaged. The caller owns the record.
	Read(ctx context.Context, id string) (*session.Record, error)
	// Close releases the connections.
	Close()
}

// OpenSource opens a folder of sessions on this machine, or the sessions of a tap at an http or
// https URL. The token is the tap's token. It can be empty, and it is not used for a folder.
// OpenSource returns an error if there is no such folder, or if no tap with sessions answers.
func OpenSource(ctx context.Context, where, token string) (Source, error) {
	if strings.HasPrefix(where, "http://") || strings.HasPrefix(where, "https://") {
		return OpenRemote(ctx, where, token)
	}
	return OpenFolder(where)
}

// A Folder is a Source that reads a folder on this machine. It polls the folder for new sessions.
type Folder struct {
	dir string

	mu    sync.Mutex
	names map[string]string // names by id, as they were last listed; protected by mu
}

// OpenFolder opens a folder of sessions. The folder can be in use by another process.
func OpenFolder(dir string) (*Folder, error) {
	if _, err := os.Stat(filepath.Join(dir, sealedFolder)); err != nil {
		return nil, fmt.Errorf("%s is not a folder of sessions (it has no folder %s): %w", dir, sealedFolder, err)
	}
	return &Folder{dir: dir}, nil
}

const (
	pollEvery = 100 * time.Millisecond // how often a Folder checks whether the folder has changed
	listEvery = time.Second            // how often a Folder lists the folder without a change
)

// Sealed implements Source.
func (f *Folder) Sealed(_ context.Context, after string) ([]Entry, error) {
	entries, err := sealed(f.dir, after)
	if err != nil {
		err = fmt.Errorf("sessions: %w", err)
	}
	if len(entries) > 0 {
		names := make([]string, len(entries))
		for i, e := range entries {
			names[i] = e.Name
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.remember(names)
	}
	return entries, err
}

// remember replaces the known names. If a session has two names, it keeps the higher one. The caller
// must hold f.mu.
func (f *Folder) remember(names []string) {
	f.names = make(map[string]string, len(names))
	for _, name := range names {
		f.names[idIn(name)] = name
	}
}

// Wait implements Source.
func (f *Folder) Wait(ctx context.Context, after string) error {
	var seen, listed time.Time
	for {
		info, err := os.Stat(filepath.Join(f.dir, sealedFolder))
		if err != nil {
			return fmt.Errorf("sessions: %w", err)
		}
		if now := time.Now(); !info.ModTime().Equal(seen) || now.Sub(listed) >= listEvery {
			seen, listed = info.ModTime(), now
			names, err := list(f.dir, after)
			if err != nil {
				return fmt.Errorf("sessions: %w", err)
			}
			if len(names) > 0 {
				return nil
			}
		}
		if !wait.For(ctx, pollEvery) {
			return context.Cause(ctx)
		}
	}
}

// Read implements Source.
func (f *Folder) Read(_ context.Context, id string) (*session.Record, error) {
	f.mu.Lock()
	name, known := f.names[id]
	f.mu.Unlock()
	if known {
		rec, err := readFile(sealedPath(f.dir, name), id)
		if !errors.Is(err, ErrUnknown) {
			return rec, err
		}
	}
	name, err := f.find(id) // the session was not in the last list, or has another name by now
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", id, err)
	}
	return readFile(sealedPath(f.dir, name), id)
}

// find reads the folder and returns the name of a session.
func (f *Folder) find(id string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names, err := readNames(f.dir, "")
	if err != nil {
		return "", err
	}
	f.remember(names)
	if name, ok := f.names[id]; ok {
		return name, nil
	}
	return "", ErrUnknown
}

// Close implements Source.
func (f *Folder) Close() {}
