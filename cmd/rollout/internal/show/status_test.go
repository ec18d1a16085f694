package show

import (
	"testing"

	"github.com/rollout-rl/rollout/collector"
)

// TestDrainSaysWhatItWaitsFor checks that a drain describes the samples that it waits for, without
// those that wait for a retry.
func TestDrainSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		stages []map[collector.Stage]int // by server
		want   string
	}{
		{nil, "finished samples to be written"},
		{[]map[collector.Stage]int{{collector.StageWait: 24}}, "finished samples to be written"},
		{[]map[collector.Stage]int{{collector.StageScore: 1}}, "1 sample being scored"},
		{
			[]map[collector.Stage]int{{collector.StageOpen: 1, collector.StageRun: 2, collector.StageWait: 5}, {collector.StageRun: 4, collector.StagePrompt: 1}},
			"8 samples in flight",
		},
		{
			[]map[collector.Stage]int{{collector.StageRun: 1, collector.StageScore: 2}, {collector.StageScore: 3, collector.StageAppend: 4, collector.StageClose: 1}},
			"1 sample in flight, 5 being scored, 4 being written, 1 deleting their agents",
		},
	} {
		var s collector.Stats
		for _, stages := range tt.stages {
			s.Endpoints = append(s.Endpoints, collector.EndpointStats{Stages: stages})
		}
		if got := Works(s); got != tt.want {
			t.Errorf("works(%v) = %q, want %q", tt.stages, got, tt.want)
		}
	}
}
