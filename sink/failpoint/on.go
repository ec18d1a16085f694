//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Variable is the environment variable that selects the step.
const Variable = "ROLLOUT_FAILPOINT"

// A point is the selected step. left counts the remaining hits, including the hit that kills the
// process.
type point struct {
	name Name
	left atomic.Int64
}

// chosen reads Variable once. chosen panics if the value is invalid, so that a test with a
// misspelled step cannot pass.
var chosen = sync.OnceValue(func() *point {
	name, hit, counted := strings.Cut(os.Getenv(Variable), ":")
	p := &point{name: Name(name)}
	n := int64(1)
	if counted {
		var err error
		if n, err = strconv.ParseInt(hit, 10, 64); err != nil || n < 1 {
			panic(fmt.Sprintf("failpoint: %s: %q is not a hit number (want 1 or more)", Variable, hit))
		}
	}
	if all := slices.Concat(Names(), GroupNames(), BuildNames(), ScoreNames()); name != "" && !slices.Contains(all, p.name) {
		panic(fmt.Sprintf("failpoint: %s: %q is not one of %q", Variable, name, all))
	}
	p.left.Store(n)
	return p
})

// Hit records that the process has reached a step. If this is the selected hit, Hit kills the
// process.
func Hit(name Name) {
	p := chosen()
	if p.name != name || p.left.Add(-1) != 0 {
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(fmt.Sprintf("failpoint: %s: %v", name, err))
	}
	select {} // wait for the signal
}
