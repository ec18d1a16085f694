package sink_test

import (
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

func TestParquet(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sink.Config{Format: sink.Parquet})
}

func TestArrow(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sink.Config{Format: sink.Arrow})
}
