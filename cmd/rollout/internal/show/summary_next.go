package show

import (
	"fmt"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
)

// next returns what to do after the run, or "" if it did not finish or has no row. The error of such
// a run has a hint of its own.
func (s *Summary) next() string {
	if s.Outcome != "finished" || s.Committed == 0 {
		return ""
	}
	return fmt.Sprintf("rollout inspect %s --row 0 shows a row; in Python, rollout.Dataset(%q) reads all", format.Shell(s.Dir), s.Dir)
}
