package show

import (
	"flag"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/picturetest"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

var update = flag.Bool("update", false, "make the picture of the live block anew")

// TestPictureOfTheLiveBlock draws the picture of a run in progress.
func TestPictureOfTheLiveBlock(t *testing.T) {
	t.Parallel()
	v := midway()
	v.Stats = collector.Stats{
		Planned: 2000, Committed: 1100, Accepted: 186, Failed: 4, Remaining: 710, InFlight: 47, Retries: 12,
		FailedByClass: map[collector.Class]int{collector.ClassUnavailable: 9, collector.ClassConnection: 3},
		Endpoints:     []collector.EndpointStats{{Name: "http://10.0.0.1:8283", InFlight: 24, Limit: 24, Max: 24}, {Name: "http://10.0.0.2:8283", InFlight: 23, Limit: 24, Max: 24}},
		Oldest:        &collector.InFlight{TaskID: "gsm8k-0412", Index: 3, Attempt: 1, Endpoint: "http://10.0.0.2:8283", Stage: collector.StageRun, Since: v.Oldest.Since, Started: v.Oldest.Since},
	}
	v.Sink, v.rate, v.tokens = sink.Stats{Shards: 3, Bytes: 12_345_678}, 7.31, 12_431
	v.Failing, v.Rewards = map[string]int{"token_mismatch": 4}, &Rewards{Scored: 1282, Mean: new(0.4119)}
	text := "$ rollout collect -c run.yaml\n" + strings.Join(v.block(92, true), "\n")
	picturetest.Check(t, "collect.svg", picturetest.Terminal(t, 92, text), *update)
}
