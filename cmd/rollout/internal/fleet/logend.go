package fleet

import (
	"encoding/json"
	"fmt"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// A logEnd describes the end of a partition's log.
type logEnd struct {
	epoch  int64  // of the last claim; 0: no worker has claimed the partition
	worker string // of the last claim; not set if the log is sealed
	sealed bool
}

// readEnd reads the end of a log, with 2 or 3 requests. A list can omit the newest entries, so the result
// can be old.
func readEnd(dataset store.Store) (end logEnd, err error) {
	last := ""
	for info, err := range dataset.List("_commits/", "") {
		if err != nil {
			return end, err
		}
		last = info.Name
	}
	if last == "" {
		return end, nil
	}
	e, err := readEntry(dataset, last)
	end.epoch, end.sealed = e.Epoch, e.Kind == "sealed"
	if err == nil && e.Kind == "" {
		e, err = readEntry(dataset, fmt.Sprintf("_commits/%020d.json", e.Claim))
	}
	end.worker = e.Worker
	return end, err
}

// An entry contains the members of a log entry that decide who has the log. Only Create checks an entry.
type entry struct {
	Kind   string `json:"kind"`
	Worker string `json:"worker"`
	Epoch  int64  `json:"epoch"`
	Claim  int64  `json:"claim"`
}

func readEntry(dataset store.Store, name string) (e entry, err error) {
	body, err := dataset.Get(name)
	if err == nil && (json.Unmarshal(body, &e) != nil || e.Epoch < 1) {
		err = fmt.Errorf("%w: %s/%s is not an entry of a fleet's log", sink.ErrCorrupt, dataset, name)
	}
	return e, err
}
