package fleet

import (
	"encoding/json"
	"fmt"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// A logEnd describes the end of a partition's log.
type logEnd struct {
	seq    int64  // number of the last entry; 0: no worker has claimed the partition
	epoch  int64  // of the last claim
	worker string // of the last claim; not set if the log is sealed
	sealed bool
}

// readEnd returns the current end of a log whose end was known before. A list can omit the newest
// entries, so the result can be old.
func readEnd(dataset store.Store, known logEnd) (logEnd, error) {
	last := ""
	for info, err := range dataset.List("_commits/", entryName(known.seq)) {
		if err != nil {
			return known, err
		}
		last = info.Name
	}
	if last == "" {
		return known, nil
	}
	e, err := readEntry(dataset, last)
	if err != nil {
		return known, err
	}
	end := logEnd{seq: e.Seq, epoch: e.Epoch, worker: e.Worker, sealed: e.Kind == "sealed"}
	switch {
	case end.sealed, e.Kind == "claim":
	case e.Epoch == known.epoch:
		end.worker = known.worker
	default:
		if e, err = readEntry(dataset, entryName(e.Claim)); err != nil {
			return known, err
		}
		end.worker = e.Worker
	}
	return end, nil
}

// entry contains the members of a log entry that decide who has the log. Only Create checks an entry.
type entry struct {
	Seq    int64  `json:"seq"`
	Kind   string `json:"kind"`
	Worker string `json:"worker"`
	Epoch  int64  `json:"epoch"`
	Claim  int64  `json:"claim"`
}

func entryName(seq int64) string { return fmt.Sprintf("_commits/%020d.json", seq) }

func readEntry(dataset store.Store, name string) (e entry, err error) {
	body, err := dataset.Get(name)
	if err == nil && (json.Unmarshal(body, &e) != nil || e.Epoch < 1) {
		err = fmt.Errorf("%w: %s/%s is not an entry of a fleet's log", sink.ErrCorrupt, dataset, name)
	}
	return e, err
}
