package sink_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.Setenv()
	sinktest.FillPools()
	goleak.VerifyTestMain(m)
}
