package sink

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rollout-rl/rollout/sink/store"
)

// A Cursor is a position in the sequence of a dataset's groups, in the order in which the groups
// became whole. The groups before the cursor are all groups that commits with numbers below Seq
// made whole, and the first Groups groups that commit Seq made whole. Groups that the reader skips
// also count. Seq is always the number of a commit and never the number of a merge, so a merge does
// not move a cursor. A Cursor with only a RunID is at the start of the dataset.
type Cursor struct {
	RunID  string `json:"run_id"`
	Seq    int64  `json:"seq"`
	Groups int    `json:"groups"`
}

func (c Cursor) before(o Cursor) bool {
	return c.Seq < o.Seq || c.Seq == o.Seq && c.Groups < o.Groups
}

const ackName = "ack.json"

// ReadAck returns the last acknowledged Cursor in the run's folder dir, or the zero Cursor if no
// reader has acknowledged any groups. If ack.json is not valid, the error is a *CorruptError. All
// other errors come from the file system.
func ReadAck(dir string) (Cursor, error) { return readAck(store.Folder(OS(), dir)) }

func readAck(objects store.Store) (c Cursor, err error) {
	body, err := objects.Get(ackName)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, asPath(err)
	}
	err = json.Unmarshal(body, &c)
	if err == nil && (c.RunID == "" || c.Seq < 0 || c.Groups < 0) {
		err = fmt.Errorf("run %q, seq %d, groups %d: not a valid cursor", c.RunID, c.Seq, c.Groups)
	}
	if err != nil {
		return Cursor{}, &CorruptError{Path: ackName, Row: -1, Err: err}
	}
	return c, nil
}

// Acknowledge durably records that readers no longer need the groups before the cursor. Replaced
// files that contain only these groups can then be deleted. If c is not after the last acknowledged
// cursor, Acknowledge does nothing. Acknowledge returns an error if c belongs to another run or is
// ahead of the log. If it cannot write ack.json, the error is a *ShardError. Acknowledge blocks
// until the cursor is on disk.
//
// With Config.Store, Acknowledge returns an error: a trainer that reads a bucket stores its cursors.
func (d *Dataset) Acknowledge(c Cursor) error {
	if !d.folder {
		return errors.New("sink: Acknowledge needs a dataset in a folder: with Config.Store, the reader must store its cursor")
	}
	d.logMu.Lock()
	last := d.nextSeq - 1
	d.logMu.Unlock()
	if err := c.check(d.cfg.RunID, last); err != nil {
		return err
	}
	d.ackMu.Lock()
	defer d.ackMu.Unlock()
	if !d.ack.before(c) {
		return nil
	}
	body, err := json.Marshal(c)
	if err != nil {
		return err // cannot happen, because all fields can be encoded as JSON
	}
	if err := d.objects.Put(ackName, append(body, '\n')); err != nil {
		return shardError("write", err)
	}
	d.ack = c
	d.merger.wakeUp()
	return nil
}

// Acknowledged returns the last acknowledged Cursor. If no reader has acknowledged any groups, its
// RunID is empty.
func (d *Dataset) Acknowledged() Cursor {
	d.ackMu.Lock()
	defer d.ackMu.Unlock()
	return d.ack
}

// check validates a cursor. runID is the id of the dataset's run, and last is the number of the
// last entry in the log.
func (c Cursor) check(runID string, last int64) error {
	switch {
	case c.RunID != runID:
		return fmt.Errorf("sink: the cursor belongs to run %q, but the dataset belongs to run %q", c.RunID, runID)
	case c.Seq < 0 || c.Groups < 0:
		return fmt.Errorf("sink: cursor with seq %d and groups %d: both must be ≥ 0", c.Seq, c.Groups)
	case c.Seq > last+1 || c.Seq == last+1 && c.Groups > 0:
		return fmt.Errorf("sink: the cursor is at group %d of commit %d, but the log ends at entry %d", c.Groups, c.Seq, last)
	}
	return nil
}

// readAck reads the acknowledged cursor into d.ack. last is the number of the last entry in the
// log.
func (d *Dataset) readAck(last int64) error {
	if !d.folder {
		return nil
	}
	ack, err := readAck(d.objects)
	if err == nil && ack.RunID != "" {
		if cerr := ack.check(d.cfg.RunID, last); cerr != nil {
			err = &CorruptError{Path: ackName, Row: -1, Err: cerr}
		}
	}
	d.ack = ack
	return err
}
