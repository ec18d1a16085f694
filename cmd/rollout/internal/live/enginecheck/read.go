package enginecheck

import "github.com/rollout-rl/rollout/sink"

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
