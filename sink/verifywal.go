package sink

import (
	"context"
	"errors"
	"io/fs"
)

// A WALReport is the part of Verify's result that describes the write-ahead log.
type WALReport struct {
	Segments int
	// Pending counts durable samples that are not yet in a commit.
	Pending int64
	// TornBytes counts bytes that were never durable. The next Create drops these bytes, and
	// Verify does not report them as a problem.
	TornBytes int64
}

// wal checks the segments of the write-ahead log. A running process can delete a segment at any
// time, so a missing segment is not a problem.
func (v *verifier) wal(ctx context.Context) error {
	names, err := walSegments(v.fs, v.dir)
	if err != nil {
		return err
	}
	for i, name := range names {
		v.named[walDir+"/"+name] = true
		err := readSegment(v.fs, v.dir, name, i == len(names)-1, func(part segmentPart) error {
			switch {
			case part.torn != nil:
				v.report.WAL.TornBytes += part.torn.Bytes
			case part.corrupt != nil:
				v.problem(walDir+"/"+name, -1, part.corrupt)
			case !v.known.has(part.sample):
				v.known.add(part.sample.Key, part.sample.Attempt, failed(part.sample))
				v.report.WAL.Pending++
			}
			return context.Cause(ctx)
		})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, ErrNewer), ctx.Err() != nil:
			return err
		case err != nil:
			v.problem(walDir+"/"+name, -1, err)
		}
		v.report.WAL.Segments++
	}
	return nil
}
