package fleet

import (
	"strings"
	"time"

	"github.com/rollout-rl/rollout/sink/store"
)

// Garbage returns the objects outside of the partitions that no reader needs: the tasks of plans that did
// not end, and what a killed process left of its probe of the store. They are older than the given time by
// the clock of the store.
func (f *Fleet) Garbage(objects store.Store, before time.Time) (list []store.Info, err error) {
	for _, prefix := range []string{tasksDir, ".probe/"} {
		for i, err := range objects.List(prefix, "") {
			if err != nil {
				return nil, err
			}
			if !strings.HasPrefix(i.Name, tasksDir+f.ID+"/") && i.Time.Before(before) && !i.Time.IsZero() {
				list = append(list, i)
			}
		}
	}
	return list, nil
}
