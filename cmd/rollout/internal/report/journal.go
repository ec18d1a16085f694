package report

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rollout-rl/rollout/collector/journal"
)

// readJournal counts the attempts that have no outcome and whose samples are not done. It needs a
// few bytes of memory per open attempt.
func readJournal(dir string, r *Report, done keys) {
	dir = filepath.Join(dir, "journal")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	open := map[string]struct{}{}
	for e, err := range journal.Read(dir) {
		if err != nil {
			r.problem("not counted: ", err)
			continue
		}
		switch e.Op {
		case journal.OpBegin:
			open[e.Key] = struct{}{}
		case journal.OpEnd:
			delete(open, e.Key)
		default: // agent ids and charges, which neither start nor end an attempt
		}
	}
	n := 0
	for key := range open {
		if !done.has(key) {
			n++
		}
	}
	r.Retries.Open = &n
}
