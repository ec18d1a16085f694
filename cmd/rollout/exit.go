package main

import (
	"errors"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// exitTable is the part of the help texts that lists the exit codes.
const exitTable = `Exit status:
    0  all planned samples are committed, or cut by --tail
    1  internal error
    2  usage, configuration or task error
    3  finished; some samples failed or were not scored, within --fail-on-error
    4  more failures than --fail-on-error (default: none) or --max-failures allows, more
       cuts than --tail allows, fewer groups than --until-groups, or no row at all
    5  server or model unusable, or no sample would give a row
    6  storage failed: disk full, permission denied
    7  the folder is not empty, already contains a run, or its run cannot be resumed this way
    8  the folder is locked by another process
    9  the run's files are damaged; see rollout verify
  130  interrupted; collect --resume continues`

// report prints err once and returns the exit code. It prints Complaints one per line.
func (p *program) report(err error) int {
	if s, ok := errors.AsType[exit.SilentError](err); ok {
		return int(s)
	}
	if err == nil {
		return exit.OK
	}
	for _, line := range exit.Lines(err) {
		p.say("%s", line)
	}
	if hint := exit.HintOf(err); hint != "" {
		termsafe.Fprintf(p.stderr, "hint: %s\n", hint)
	}
	return exit.Code(err)
}
