// Package config holds the settings of a run: their names in the file, in the environment and on
// the command line, their values, and the origin of each value.
//
//	settings.go   one entry per setting: key, type, default, flag, help
//	load.go       file, environment and flags set texts; the last one wins
//	setting.go    parses a text into a value of the setting's type
//	check.go      conflicts between values that are valid on their own
//
// Packages collect and connect convert the values into the configurations of the libraries.
//
// To add a setting, add its field (config.go), its entry (settings.go), its words if it
// has a closed list (words.go), its conflicts (check.go), its use (settings.go of collect) and its
// line in configs/collect.yaml. If rows depend on it, add it to keptSetting in package runfolder
// (identity.go).
package config

import (
	"encoding/json"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A Config holds all settings of collect. It is filled from the defaults, a file, the environment
// and flags, in that order. The method settings has the default and the names of each setting.
type Config struct {
	Server struct {
		URLs           servers
		Password       Secret
		MaxInFlight    int // limit per server; a server can have its own
		Adaptive       bool
		EngineMetrics  []string // URLs
		ConnectTimeout time.Duration
		IdleTimeout    time.Duration // maximum pause between two parts of a reply
		StuckAfter     time.Duration // longest time without a new step of a server run that is recovered
		Timeout        time.Duration // limit of one send
		ReadBytes      int64         // limit on bytes of replies being read at the same time
		ReceiveBuffer  int64         // in bytes; 0: the system's default
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
		ContextWindow       int      // 0: the model's context window
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
		Limit   int // 0: all samples
		SkipBad bool
		// UntilGroups is the number of informative groups after which the run ends. 0: the run
		// collects all tasks.
		UntilGroups int
		// FromRuns selects the server runs to read instead of driving agents. Nil: none.
		FromRuns *Runs
		Follow   bool // with FromRuns: also read runs that end later
	}
	Tokens struct {
		Prompts                  Prompts
		Tap                      []string // URLs and folders
		Require                  Require
		Drift                    tokenize.Drift
		Tokenizer                string
		RealignMax, MaxRowTokens int
		VocabSize                int                // 0: vocab_size of the engine's config.json
		VocabStrict              bool               // false: also accept the ids of an engine's padded vocabulary
		MaskAfterStop            bool               // do not train the tokens after the first end-of-turn id of a call
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
		Timeout          time.Duration // limit of one score by a command
		Tolerance        float64
		IgnoreCase       bool
		IncludeReasoning bool
		MinStd           float64 // minimum standard deviation of a group's rewards; 0: no filter
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
		CheckFull      bool // true: compare all digests before a run is resumed; false: compare sizes before, and digests during the run
		Retries        int
		DataRetries    int
		FailOnError    Tolerance
		MaxFailures    int // 0: no limit
		AttemptTimeout time.Duration
		BusyPatience   time.Duration // sets collector.Config.BusyMax
		Grace          time.Duration // 0: no limit
		Tail           collector.Tail
		MaxAhead       int    // in groups; 0: no limit
		MaxLag         int    // in versions; -1: no limit
		MetricsAddr    string // empty: metrics are not served
		MetricsPprof   bool
	}
}

// Groups reports whether the run collects by whole groups even without --stream.
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
