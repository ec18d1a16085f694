// Package config holds the settings of a run: what there is to set, how each setting is
// called in a file, in the environment and on the command line, what its value is and
// where that came from.
//
// A setting's way:
//
//	settings.go   one line per setting: key, flag, type, help
//	load.go       file, environment, flags: each sets texts, the last one wins
//	setting.go    a text becomes a value of its type, or a complaint
//	check.go      what is wrong with values that are fine each by itself
//
// The libraries' own Configs are made of the values in wire.go of the command.
//
// To add a setting: its field and its default (config.go), its line (settings.go), its words
// if it has a closed list (words.go), what it excludes (check.go), its place in a library's
// Config (wire.go of the command), and its line in configs/collect.yaml. If rows depend on it,
// keptSetting of package runfolder (identity.go) must say so.
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

// A Config is all that collect can be told. It is filled from defaults, a file,
// the environment and flags, in that order; settings says how each field is called
// in all four. The packages' own Configs are made from it in wire.go.
type Config struct {
	Server struct {
		URLs           servers
		Password       Secret
		MaxInFlight    int // per server, of those without one of their own
		Adaptive       bool
		EngineMetrics  []string // URLs
		ConnectTimeout time.Duration
		IdleTimeout    time.Duration // between two bytes of a reply that has begun
		StuckAfter     time.Duration // without a step of a server run that is looked up
		Timeout        time.Duration // of one send
		ReadBytes      int64         // of replies that are read at once
		ReceiveBuffer  int64         // bytes; 0: the system's
		Headers        headers
		Timezone       *time.Location // nil: not known
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
		Temperature         *float64 // nil: the server's
		ContextWindow       int      // 0: the model's
		Approvals           agent.ApprovalPolicy
		Keep, KeepReasoning bool
		MaxSteps            int // 0: the server's
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
		// UntilGroups is with how many groups that teach something the run has enough. 0: it
		// takes all tasks.
		UntilGroups int
		// FromRuns says which server runs are read instead of driving agents. Nil: none.
		FromRuns *Runs
		Follow   bool // of FromRuns: those that end later too
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
		Kind          Reward
		Pattern, Path string
		Command       []string
		Processes     int
		Timeout       time.Duration // of one score by a command
		Tolerance     float64
		IgnoreCase    bool
		// IncludeReasoning scores the whole text of the last message.
		IncludeReasoning bool
		MinStd           float64 // of the rewards of a group; 0: none is left out
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
		Grace          time.Duration // 0: no bound
		Tail           collector.Tail
		MaxAhead       int    // groups; 0: no limit
		MaxLag         int    // versions; -1: no limit
		MetricsAddr    string // empty: none
		MetricsPprof   bool
	}
}

// Default is the configuration of someone who says nothing. A value that a library also has
// as a default is the library's constant. What is not here is zero, which a library may
// replace by its own default. Run.Retries is the command's: package collector
// retries nothing that is held against a sample unless it is told to.
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

// Release is the release of transformers by whose rules templates are rendered: the oldest
// one if the server's is not set.
func (c *Config) Release() chat.Transformers {
	if c.Tokens.Transformers == nil {
		return chat.Transformers457
	}
	return *c.Tokens.Transformers
}

// Releases are the releases of transformers that the server can have; nil: all of them.
func (c *Config) Releases() []chat.Transformers {
	if c.Tokens.Transformers == nil {
		return nil
	}
	return []chat.Transformers{*c.Tokens.Transformers}
}
