package main

import (
	"errors"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
)

// exitTable is the part of every help text that says what the codes mean.
const exitTable = `Exit status:
    0  everything that was planned is committed, or cut by --tail
    1  internal error
    2  wrong flags, configuration or tasks
    3  finished; some samples failed or could not be scored, no more than --fail-on-error allows
    4  more of them than --fail-on-error (default: none) or --max-failures allows, more
       cut than --tail says, or no row at all
    5  server or model not usable, or no sample would give a row
    6  storage failed: disk full, permission denied
    7  the folder is not empty, already holds a run, or its run cannot be resumed this way
    8  the folder is locked by another process
    9  the run's files are damaged; verify lists what is wrong
  130  interrupted; collect --resume continues`

// report prints err, once, and returns the exit code. Complaints are
// printed one per line.
func (p *program) report(err error) int {
	if s, ok := errors.AsType[exit.Silent](err); ok {
		return int(s)
	}
	if err == nil {
		return exit.OK
	}
	for _, line := range exit.Lines(err) {
		p.say("%s", line)
	}
	if hint := exit.HintOf(err); hint != "" {
		tame.Fprintf(p.stderr, "hint: %s\n", hint)
	}
	return exit.Code(err)
}
