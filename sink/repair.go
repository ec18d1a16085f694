package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/rollout-rl/rollout/sink/frame"
)

// A RepairPlan lists the changes that Apply will make to a damaged dataset so that Create accepts
// it again. The write-ahead log of such a dataset is damaged, or the last entries of its commit
// log are missing.
type RepairPlan struct {
	// Segments lists the damaged segments. If Segments and Lost are empty, there is nothing to
	// repair.
	Segments []SegmentRepair
	// Lost lists the shards whose entry is missing from the end of the log (ErrLostCommit). The
	// paths are relative to the run's folder. Apply sets these shards aside, and a resumed run
	// collects their samples again. Lost is empty if the commit log cannot be read.
	Lost []string

	location
}

// A SegmentRepair describes a damaged segment. Apply sets the segment aside and copies its intact
// samples to a new segment.
type SegmentRepair struct {
	// Path is the path of the segment. Aside is the path to which Apply moves the segment. Both
	// paths are relative to the run's folder.
	Path, Aside string
	// Samples counts the intact samples.
	Samples int
	// Damage lists the damaged parts in order. LostBytes is the total length of these parts.
	// Samples in these parts were reported as durable, but they are lost. Their keys are not in
	// the dataset, so a resumed run collects the samples again.
	Damage    []*frame.CorruptError
	LostBytes int64

	name string
	last bool
}

// PlanRepair plans the repair of the dataset in the run's folder dir. It does not change any
// file. If fsys is nil, PlanRepair uses the operating system's file system. No other process may
// use the folder at the same time.
//
// PlanRepair returns an error if the folder cannot be read or if a newer version of the program
// wrote the dataset (ErrNewer).
func PlanRepair(fsys FS, dir string) (*RepairPlan, error) {
	p := &RepairPlan{location: locate(nil, fsys, dir)}
	fsys = p.fs
	taken, err := fsys.ReadDir(filepath.Join(dir, orphansDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names, err := walSegments(fsys, dir)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		s := SegmentRepair{Path: walDir + "/" + name, name: name, last: i == len(names)-1}
		aside := walDir + "-" + name
		for k := 2; slices.Contains(taken, aside); k++ { // an earlier repair has used this name
			aside = fmt.Sprintf("%s-%d-%s", walDir, k, name)
		}
		s.Aside = orphansDir + "/" + aside
		err := readSegment(fsys, dir, name, s.last, func(part segmentPart) error {
			switch {
			case part.corrupt != nil:
				s.Damage = append(s.Damage, part.corrupt)
				s.LostBytes += part.corrupt.Bytes
			case part.sample != nil:
				s.Samples++
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(s.Damage) > 0 {
			p.Segments = append(p.Segments, s)
		}
	}
	if log, err := readLog(p.location, "", nil); err == nil {
		if p.Lost, err = log.lostShards(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Apply carries out the plan. If Apply is interrupted, no intact sample is lost. The caller must
// then make a new plan.
func (p *RepairPlan) Apply() error {
	for _, s := range p.Segments {
		if err := p.repair(s); err != nil {
			return err
		}
	}
	for _, path := range p.Lost {
		if err := setAside(p.fs, p.dir, path, asideOf(path), p.fs.Rename); err != nil {
			return err
		}
	}
	return nil
}

// repair writes a new segment with all intact samples, links the damaged segment into orphans/, and
// renames the new segment over the damaged one.
func (p *RepairPlan) repair(s SegmentRepair) error {
	setDamagedAside := func() error { return setAside(p.fs, p.dir, s.Path, s.Aside, p.fs.Link) }
	_, err := replaceSegment(p.fs, p.dir, s.name, setDamagedAside, func(w *frame.Writer) error {
		return readSegment(p.fs, p.dir, s.name, s.last, func(part segmentPart) error {
			if part.sample == nil {
				return nil
			}
			return w.Write(part.payload)
		})
	})
	if err != nil {
		return &ShardError{Path: filepath.Join(p.dir, filepath.FromSlash(s.Path)), Op: "repair", Err: err}
	}
	return nil
}
