package sink

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// A Cursor is a place among the whole groups of a dataset, in the order in which they became
// whole. Behind it lie all groups that became whole by commits before Seq, and the first
// Groups of those that became whole by commit Seq, in the order of their first sample there. A
// group counts whether a reader wants it or not. A merge moves no cursor: Seq is the number of
// a commit, never of a merge. The zero Cursor, but for RunID, is the begin.
type Cursor struct {
	RunID  string `json:"run_id"`
	Seq    int64  `json:"seq"`
	Groups int    `json:"groups"`
}

// before reports whether fewer groups lie behind c than behind o.
func (c Cursor) before(o Cursor) bool {
	return c.Seq < o.Seq || c.Seq == o.Seq && c.Groups < o.Groups
}

// ackName is the file of the last Cursor that a reader acknowledged.
const ackName = "ack.json"

// ReadAck returns the last Cursor that was acknowledged in the run's folder dir, the zero
// Cursor where none was. An error is one of the file system or a *CorruptError.
func ReadAck(dir string) (Cursor, error) { return readAck(OS(), dir) }

func readAck(fsys FS, dir string) (c Cursor, err error) {
	f, err := fsys.Open(filepath.Join(dir, ackName))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	body, err := readAll(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return c, err
	}
	err = json.Unmarshal(body, &c)
	if err == nil && (c.RunID == "" || c.Seq < 0 || c.Groups < 0) {
		err = fmt.Errorf("run %q, seq %d, groups %d: no cursor is such", c.RunID, c.Seq, c.Groups)
	}
	if err != nil {
		return Cursor{}, &CorruptError{Path: ackName, Row: -1, Err: err}
	}
	return c, nil
}

// Acknowledge says that a reader needs nothing behind the cursor any more, durably: files
// that merges replaced may be deleted up to there. A cursor that is not before the last one
// takes its place; one before it changes nothing. One of another run, or ahead of the log, is an
// error, and so is a file that cannot be written, a *ShardError. It blocks on the disk.
func (d *Dataset) Acknowledge(c Cursor) error {
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
	if err := putAck(d.cfg.FS, d.dir, c); err != nil {
		return &ShardError{Path: filepath.Join(d.dir, ackName), Op: "write", Err: err}
	}
	d.ack = c
	d.merger.wakeUp()
	return nil
}

// Acknowledged returns the last Cursor that was acknowledged; its RunID is empty where none was.
func (d *Dataset) Acknowledged() Cursor {
	d.ackMu.Lock()
	defer d.ackMu.Unlock()
	return d.ack
}

// check compares a cursor with the run and the last entry of its log.
func (c Cursor) check(runID string, last int64) error {
	switch {
	case c.RunID != runID:
		return fmt.Errorf("sink: the cursor is of run %q, the dataset of run %q", c.RunID, runID)
	case c.Seq < 0 || c.Groups < 0:
		return fmt.Errorf("sink: a cursor with seq %d and groups %d: both must be ≥ 0", c.Seq, c.Groups)
	case c.Seq > last+1 || c.Seq == last+1 && c.Groups > 0:
		return fmt.Errorf("sink: the cursor is at group %d of commit %d, and the log ends with entry %d", c.Groups, c.Seq, last)
	}
	return nil
}

const ackTemp = tempPrefix + "ack-"

func putAck(fsys FS, dir string, c Cursor) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err // a struct of plain fields: cannot happen
	}
	temp := filepath.Join(dir, ackTemp+rand.Text()+".json")
	f, err := fsys.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.Write(append(body, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fsys.Rename(temp, filepath.Join(dir, ackName))
	}
	if err != nil {
		_ = fsys.Remove(temp) // a leftover goes with the next Create
		return err
	}
	return fsys.SyncDir(dir)
}

// readAck reads what was acknowledged before, and removes what a killed process left of such a
// file. names are those in the folder, last is the last entry of the log.
func (d *Dataset) readAck(names []string, last int64) error {
	for _, name := range names {
		if strings.HasPrefix(name, ackTemp) {
			_ = d.cfg.FS.Remove(filepath.Join(d.dir, name)) // it is in nobody's way
		}
	}
	ack, err := readAck(d.cfg.FS, d.dir)
	if err == nil && ack.RunID != "" {
		if cerr := ack.check(d.cfg.RunID, last); cerr != nil {
			err = &CorruptError{Path: ackName, Row: -1, Err: cerr}
		}
	}
	d.ack = ack
	return err
}
