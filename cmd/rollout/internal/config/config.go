// Package config holds the settings of a run: their names in the file, in the environment and on
// the command line, their values, and the origin of each value.
//
//	settings.go   one line per setting: key, flag, type, help
//	load.go       file, environment and flags set texts; the last one wins
//	setting.go    parses a text into a value of the setting's type
//	check.go      conflicts between values that are valid on their own
//
// Packages collect and connect convert the values into the configurations of the libraries.
//
// To add a setting, add its field and default (config.go), its line (settings.go), its words if it
// has a closed list (words.go), its conflicts (check.go), its use (settings.go of collect) and its
// line in configs/collect.yaml. If rows depend on it, add it to keptSetting in package runfolder
// (identity.go).
package config

import (
	"encoding/json"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/collector/reward"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A Config holds all settings of collect. It is filled from the defaults, a file, the environment
// and flags, in that order. The names of its fields in these sources are in settings.
type Config struct {
	Server struct {
		URLs           servers
		Password       Secret
		MaxInFlight    int // per server, unless the server has its own
		Adaptive       bool
		EngineMetrics  []string // URLs
		ConnectTimeout time.Duration
		IdleTimeout    time.Duration // longest pause within a reply
		StuckAfter     time.Duration // longest time without a new step of a server run that is recovered
		Timeout        time.Duration // of one send
		ReadBytes      int64         // bytes of replies being read at the same time
		ReceiveBuffer  int64         // bytes; 0: the system's default
		Headers        headers
		Timezone       *time.Location // nil: unknown
		CAFile         string
		ClientCert     string
		ClientKey      string
	}
	Agent struct {
		Model, File, System string
		Tools, ToolIDs      []string
		Tags                []string
		ClientTools         clientTools
		Create              json.RawMessage
		Temperature         *float64 // nil: the server's default
		ContextWindow       int      // 0: the model's
		Approvals           agent.ApprovalPolicy
		Keep, KeepReasoning bool
		MaxSteps            int // 0: the server's default
		MaxRounds           int
		Conversation        bool
		OverrideModel       string
		OverrideSystem      string
	}
	Tasks struct {
		File    string
		Samples int
		Limit   int // 0: all
		SkipBad bool
		// UntilGroups is how many informative groups end the run. 0: the run takes all tasks.
		UntilGroups int
		// FromRuns selects the server runs to read instead of driving agents. Nil: none.
		FromRuns *Runs
		Follow   bool // with FromRuns: also runs that end later
	}
	Tokens struct {
		Prompts                  Prompts
		Tap                      []string // URLs and folders
		Require                  Require
		Drift                    tokenize.Drift
		Tokenizer                string
		RealignMax, MaxRowTokens int
		VocabSize                int // 0: vocab_size of the engine's config.json
		Vocab                    Vocab
		AfterStop                AfterStop
		Transformers             *chat.Transformers // nil: the server can have any release
		Experimental             bool
		PolicyVersion            PolicyVersion
		OneEngine                bool
		PolicyVersionDelay       time.Duration
	}
	Reward struct {
		Kind             Reward
		Pattern, Path    string
		Command          []string
		Processes        int
		Timeout          time.Duration // of one score by a command
		Tolerance        float64
		IgnoreCase       bool
		IncludeReasoning bool
		MinStd           float64 // least standard deviation of a group's rewards; 0: no filter
	}
	Output struct {
		Dir        string
		Format     sink.Format
		ShardBytes int64
		ShardAge   time.Duration
		Messages   bool
		Share      Share
	}
	Run struct {
		Preflight      Preflight
		Check          Check
		Retries        int
		DataRetries    int
		FailOnError    Tolerance
		MaxFailures    int // 0: no limit
		AttemptTimeout time.Duration
		BusyPatience   time.Duration // collector.Config.BusyMax
		Grace          time.Duration // 0: no limit
		Tail           collector.Tail
		MaxAhead       int    // groups; 0: no limit
		MaxLag         int    // versions; -1: no limit
		MetricsAddr    string // empty: none
		MetricsPprof   bool
	}
}

// Default returns the default configuration. Defaults that a library shares are the library's
// constants. Other fields are zero, and a library can replace zero by its own default. Run.Retries
// is the command's own: package collector retries no failure that counts against a sample unless it
// is configured to.
func Default() *Config {
	c := new(Config)
	c.Server.MaxInFlight = collector.DefaultMaxInFlight
	c.Server.Adaptive = true
	c.Server.ConnectTimeout = letta.DefaultConnectTimeout
	c.Server.IdleTimeout = letta.DefaultIdleBodyTimeout
	c.Server.StuckAfter = agent.DefaultStuckAfter
	c.Server.Timeout = letta.DefaultSendTimeout
	c.Server.ReadBytes = letta.DefaultReadBytes
	c.Agent.MaxRounds = agent.DefaultMaxRounds
	c.Tasks.Samples = 1
	c.Tokens.Require = RequireAuto
	c.Tokens.RealignMax = 32
	c.Tokens.Vocab = VocabPadded
	c.Tokens.AfterStop = AfterStopKeep
	c.Tokens.PolicyVersionDelay = policy.DefaultDelay
	c.Reward.Kind = RewardNone
	c.Reward.Processes = reward.DefaultProcesses
	c.Reward.Timeout = reward.DefaultTimeout
	c.Output.ShardBytes = sink.DefaultMaxShardBytes
	c.Output.ShardAge = sink.DefaultMaxShardAge
	c.Output.Share = ShareNone
	c.Run.Preflight = PreflightCall
	c.Run.Check = CheckSizes
	c.Run.Retries = 2
	c.Run.AttemptTimeout = collector.DefaultAttemptTimeout
	c.Run.BusyPatience = collector.DefaultBusyMax
	c.Run.Grace = 5 * time.Minute
	c.Run.MaxLag = -1
	return c
}

// Groups reports whether the run works by whole groups even without --stream.
func (c *Config) Groups() bool { return c.Tasks.UntilGroups > 0 || c.Reward.MinStd > 0 }

// Release returns the release of transformers whose rules render the templates. It is the oldest
// one if tokens.transformers is not set.
func (c *Config) Release() chat.Transformers {
	if c.Tokens.Transformers == nil {
		return chat.Transformers457
	}
	return *c.Tokens.Transformers
}

// Releases returns the releases of transformers that the server can have, or nil for all.
func (c *Config) Releases() []chat.Transformers {
	if c.Tokens.Transformers == nil {
		return nil
	}
	return []chat.Transformers{*c.Tokens.Transformers}
}
