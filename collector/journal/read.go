package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/sink/frame"
)

func header(process int) frame.Header {
	return frame.Header{Kind: "journal", Version: 1, Number: uint64(process)}
}

const (
	suffix     = ".journal"
	temporary  = ".tmp"
	nameDigits = 8
)

type segment struct {
	process int
	path    string
}

func segmentAt(dir string, process int) segment {
	return segment{process, filepath.Join(dir, fmt.Sprintf("%0*d%s", nameDigits, process, suffix))}
}

// segments returns the segments of a journal in order. If the folder is missing, segments returns
// nil.
func segments(dir string) ([]segment, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []segment
	for _, f := range files { // sorted by name
		digits, ok := strings.CutSuffix(f.Name(), suffix)
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 1 || segmentAt(dir, n).path != filepath.Join(dir, f.Name()) {
			continue
		}
		all = append(all, segmentAt(dir, n))
	}
	return all, nil
}

// Read returns the entries of the journal in dir, ordered by process. The entries of each process
// are in the order they were written. Read can run while another process writes to the
// journal. Read then returns only the entries written so far.
//
// Read skips entries that were being written when a process or the machine stopped. If durable data
// is damaged, Read yields an Entry whose Op is 0, with an error that wraps a *frame.CorruptError.
// Read then continues with the next intact entry. Any other error ends the sequence.
func Read(dir string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		all, err := segments(dir)
		if err != nil {
			yield(Entry{}, fmt.Errorf("journal: %w", err))
			return
		}
		for _, seg := range all {
			stopped := errors.New("stopped")
			err := seg.read(func(e *Entry, k id, damage error) error {
				if damage == nil {
					e.Key = k.String()
				} else if _, torn := errors.AsType[*frame.TornError](damage); torn {
					return nil
				}
				if !yield(*e, damage) {
					return stopped
				}
				return nil
			})
			switch {
			case err == stopped:
				return
			case errors.Is(err, fs.ErrNotExist): // a compaction has just removed the segment
			case err != nil:
				yield(Entry{}, err)
				return
			}
		}
	}
}

// The method read calls yield for every entry in the segment and for every piece of damage. It does
// not set Entry.Key. Errors name the file.
func (s segment) read(yield func(e *Entry, k id, damage error) error) error {
	f, err := os.Open(s.path)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	r, err := frame.NewReader(f, info.Size(), header(s.process))
	if err != nil {
		return fmt.Errorf("journal: %s: %w", s.path, err)
	}
	for {
		at := r.Offset()
		payload, err := r.Next()
		var e Entry
		var k id
		switch {
		case err == io.EOF:
			return nil
		case err == nil:
			if e, k, err = parse(payload); err != nil {
				e = Entry{}
				err = &frame.CorruptError{Offset: at, Bytes: int64(len(payload)) + frame.Overhead, Err: err}
			}
		case !isDamage(err):
			return fmt.Errorf("journal: %s: %w", s.path, err)
		}
		e.Process = s.process
		if err != nil {
			err = fmt.Errorf("journal: %s: %w", s.path, err)
		}
		if err := yield(&e, k, err); err != nil {
			return err
		}
	}
}

func isDamage(err error) bool {
	if _, ok := errors.AsType[*frame.TornError](err); ok {
		return true
	}
	_, ok := errors.AsType[*frame.CorruptError](err)
	return ok
}
