package enginecheck

import (
	"fmt"
	"os"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/sink"
)

// A Run is the content of a run's folder.
type Run struct {
	Rows     []*sink.StoredRow
	Failures []*sink.StoredFailure
}

// Read reads all committed rows and failures of a run.
func Read(dir string) (*Run, error) {
	log, err := sink.ReadLog(dir)
	if err != nil {
		return nil, err
	}
	run := new(Run)
	for s := range log.Shards(sink.KindData) {
		for row, err := range log.Rows(s) {
			if err != nil {
				return nil, err
			}
			run.Rows = append(run.Rows, row)
		}
	}
	for s := range log.Shards(sink.KindFailures) {
		for failure, err := range log.Failures(s) {
			if err != nil {
				return nil, err
			}
			run.Failures = append(run.Failures, failure)
		}
	}
	return run, nil
}

// ReadCalls reads the logs of one or more engines.
func ReadCalls(files ...string) ([]enginesim.Call, error) {
	var all []enginesim.Call
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		calls, err := enginesim.ReadCalls(f)
		_ = f.Close() // read only
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, calls...)
	}
	return all, nil
}
