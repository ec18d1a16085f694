package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/rollout-rl/rollout/sink/frame"
	"github.com/rollout-rl/rollout/tokenize"
)

// walSegments returns the names of the segments in the order they were written. A reader without
// local files has no segments and an empty dir.
func walSegments(fsys FS, dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	names, err := fsys.ReadDir(filepath.Join(dir, walDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, ok := segmentNumber(name)
		return !ok
	})
	return names, nil
}

// A segmentPart is a frame in a segment, or torn or damaged bytes between frames.
type segmentPart struct {
	sample  *tokenize.Sample // nil if the part is not a frame
	payload []byte           // payload of the frame; valid until yield returns
	at      int64            // offset of the frame, after any marks
	// torn describes bytes that were never durable. No sample in them was reported as durable.
	// corrupt describes damaged bytes.
	torn    *frame.TornError
	corrupt *frame.CorruptError
}

// readSegment passes each part of a segment to yield. It stops if yield returns an error. The
// argument last must be true if no later segment exists. Only the last segment can have a torn or
// missing end, because the final mark of each segment is synced before the next segment is
// created.
func readSegment(fsys FS, dir, name string, last bool, yield func(segmentPart) error) (err error) {
	f, err := fsys.Open(filepath.Join(dir, walDir, name))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read-only
	size, err := f.Size()
	if err != nil {
		return err
	}
	number, _ := segmentNumber(name)
	r, err := frame.NewReader(f, size, walHeader(number))
	if errors.Is(err, frame.ErrNewer) {
		return fmt.Errorf("%s/%s: %w: %w", walDir, name, ErrNewer, err)
	}
	if corrupt, ok := errors.AsType[*frame.CorruptError](err); ok {
		return yield(segmentPart{corrupt: corrupt})
	}
	if err != nil {
		return err
	}
	at, damaged := r.Offset(), false
	err = frame.Salvage(r, func(payload []byte, damage error) error {
		part := segmentPart{payload: payload, at: r.Offset() - frame.Overhead - int64(len(payload))}
		if damage == nil {
			s, err := decodeSample(payload)
			if err != nil {
				part.payload = nil
				part.corrupt = &frame.CorruptError{Offset: at, Bytes: frame.Overhead + int64(len(payload)), Err: err}
			}
			part.sample = s
		}
		part.torn, _ = errors.AsType[*frame.TornError](damage)
		if corrupt, ok := errors.AsType[*frame.CorruptError](damage); ok {
			part.corrupt = corrupt
		}
		if t := part.torn; t != nil && !last {
			part.torn, part.corrupt = nil, &frame.CorruptError{Offset: t.Offset, Bytes: t.Bytes, Err: errors.New("the segment is incomplete, but a later segment exists")}
		}
		at, damaged = r.Offset(), part.corrupt != nil
		return yield(part)
	})
	if err != nil || last || damaged || r.Ended() {
		return err
	}
	return yield(segmentPart{corrupt: &frame.CorruptError{Offset: size, Err: errors.New("the end of the segment is missing, but a later segment exists")}})
}

func corruptSegment(name string, damage *frame.CorruptError) error {
	return &CorruptError{Path: walDir + "/" + name, Row: -1, Err: damage}
}

// attempts contains the keys that are done and the attempts that failed in a log.
type attempts struct {
	done   map[KeyID]struct{}
	failed map[attemptID]struct{}
}

type attemptID struct {
	key KeyID
	n   int32
}

func newAttempts() attempts {
	return attempts{done: map[KeyID]struct{}{}, failed: map[attemptID]struct{}{}}
}

func (l *Log) attempts() (attempts, error) {
	a := newAttempts()
	err := l.samples(func(s *CommittedSample) { a.add(s.Key, s.Attempt, s.Failed()) })
	return a, err
}

func (a attempts) add(key string, n int32, failed bool) {
	if failed {
		a.failed[attemptID{IDOf(key), n}] = struct{}{}
	} else {
		a.done[IDOf(key)] = struct{}{}
	}
}

// has reports whether a sample must not be committed, because it is in a commit or because its
// key is already done.
func (a attempts) has(s *tokenize.Sample) bool {
	id := IDOf(s.Key)
	if _, ok := a.done[id]; ok {
		return true
	}
	_, ok := a.failed[attemptID{id, s.Attempt}]
	return ok && failed(s)
}

// onlyFailed returns the number of keys that have a failed attempt but are not done.
func (a attempts) onlyFailed() int64 {
	keys := map[KeyID]struct{}{}
	for id := range a.failed {
		if _, done := a.done[id.key]; !done {
			keys[id.key] = struct{}{}
		}
	}
	return int64(len(keys))
}
