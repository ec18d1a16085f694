package report

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rollout-rl/rollout/collector/journal"
)

// readJournal counts the attempts that have no outcome, of samples that are not done.
// It keeps a few bytes for each attempt that was in flight at one time.
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
		default: // ids, and what was paid: no beginning and no end
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
