package store

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/sink/frame"
)

// An About is what a program needs before it reads a session.
type About struct {
	// Task is the task in the head of the session, or nil.
	Task *session.Task `json:"task,omitempty"`
	// Metadata is the metadata in the end of the session, or nil.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

const (
	maxList      = 10_000  // maximum number of sessions in one list
	maxAbout     = 1 << 20 // maximum size of the head and of the end of a session with an About, in bytes
	maxAllAbouts = 4 << 20 // a list ends after the session with which its Abouts exceed this size, in bytes
)

// sealed returns the first sealed sessions in a folder with names higher than after, with their Abouts.
func sealed(dir, after string) ([]Entry, error) {
	names, err := list(dir, after)
	if err != nil {
		return nil, err
	}
	entries := []Entry{} // not null in a list over HTTP
	total := 0
	for _, name := range names {
		if len(entries) == maxList || total > maxAllAbouts {
			break
		}
		path := sealedPath(dir, name)
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // the session has just been removed
		} else if err != nil {
			return nil, err
		}
		e := Entry{Name: name, ID: idIn(name), Bytes: info.Size()}
		if about, n, err := readAbout(path, e.ID, e.Bytes); err == nil { // otherwise, Read returns the session, or the error
			e.About = about
			total += n
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// readAbout reads the head and the end of a sealed session, and returns their size in bytes. It does not
// read the calls, and so does not notice whether they are damaged.
func readAbout(path, id string, size int64) (*About, int, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }() // read only
	r, err := frame.NewReader(f, min(size, maxAbout), header(id))
	if err != nil {
		return nil, 0, err
	}
	first, err := r.Next()
	if err != nil {
		return nil, 0, err
	}
	s := scan{id: id}
	if p := frame.PayloadOf(first); p.Byte() != opHead {
		return nil, 0, errNoHead
	} else if err := s.readHead(&p); err != nil {
		return nil, 0, err
	}
	last, err := frame.Last(f, size, maxAbout)
	if err != nil {
		return nil, 0, err
	}
	if len(last) == 0 || last[0] != opEnd {
		return nil, 0, errors.New("the file has no end")
	}
	var end struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	err = json.Unmarshal(last[1:], &end)
	return &About{s.head.Task, end.Metadata}, len(first) + len(end.Metadata), err
}
