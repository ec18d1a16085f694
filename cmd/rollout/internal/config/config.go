// Package config contains the settings of a run. A setting has a value, the origin of the value,
// and names in the configuration file, in the environment and on the command line.
//
//	settings.go   one entry per setting: key, type, default, flag, help
//	load.go       sets values from the file, the environment and the flags; the last one wins
//	setting.go    parses text into a value of the setting's type
//	check.go      finds conflicts between values that are valid on their own
//
// Packages collect and connect convert the values into the configurations of the libraries.
//
// To add a setting, add its field (config.go), its entry (settings.go) and its conflicts
// (check.go). If its values form a fixed list, add them to words.go. Use the setting in settings.go
// of package collect, and add a line to configs/collect.yaml. If rows depend on the setting, add it
// to keptSetting in package runfolder (identity.go).
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

// A Config contains all settings of collect. It is filled from the defaults, the configuration
// file, the environment and the flags, in that order. Its method settings defines the names and the
// default of each setting.
type Config struct {
	Server struct {
		URLs           servers
		Password       Secret
		MaxInFlight    int // limit per server; a server can have its own limit
		Adaptive       bool
		EngineMetrics  []string
		ConnectTimeout time.Duration
		IdleTimeout    time.Duration // maximum pause between two parts of a reply
		StuckAfter     time.Duration // maximum time without a new step while a server run is being recovered
		Timeout        time.Duration // timeout of one send
		ReadBytes      int64         // maximum total size, in bytes, of replies that are being read at the same time
		ReceiveBuffer  int64         // in bytes; 0: the system's default
		Headers        headers
		Timezone       *time.Location // nil if unknown
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
	// Engine contains the base URLs of the inference engines that a harness uses.
	Engine  struct{ URLs []string }
	Harness struct {
		Preset  string
		Command []string
		Stdin   string // the standard input of Command
		Env     environment
		Workdir string
		Output  string // see harness.ParseOutput; empty: stdout, or the preset's
		Timeout time.Duration
		Set     []string // sampling parameters, NAME=VALUE
		// Continuity sends the engine its own answers as it sampled them, if the harness changed
		// their form.
		Continuity bool
		// Render makes the tap render the prompts with the model's own chat template, and send token ids to
		// the engine.
		Render bool
	}
	Tasks struct {
		File    string
		Samples int
		Limit   int // 0: all samples
		SkipBad bool
		// UntilGroups is the number of informative groups after which the run ends. If it is 0, the
		// run collects all tasks.
		UntilGroups int
		// FromRuns selects server runs to read. If it is nil, the run drives agents.
		FromRuns *Runs
		// FromSessions is the URL or the folder of a tap whose sealed sessions the run reads.
		FromSessions string
		Follow       bool // also read server runs that end later, or sessions that are sealed later
	}
	Tokens struct {
		Prompts                  Prompts
		Tap                      []string // URLs and folders
		TapToken                 Secret   // the token of all these taps and of Tasks.FromSessions
		Require                  Require
		Drift                    tokenize.Drift
		ChainsAll                bool // also train on auxiliary chains
		Tokenizer                string
		RealignMax, MaxRowTokens int
		VocabSize                int                // 0: vocab_size of the engine's config.json
		VocabStrict              bool               // false: also accept ids from the engine's padded vocabulary
		MaskAfterStop            bool               // do not train on tokens after a call's first end-of-turn id
		Transformers             *chat.Transformers // nil: any supported version of the transformers library
		Experimental             bool
		PolicyVersion            PolicyVersion
		OneEngine                bool
		PolicyVersionDelay       time.Duration
	}
	Reward RewardConfig
	Output struct {
		Dir        string
		Format     sink.Format
		ShardBytes int64
		ShardAge   time.Duration
		Messages   bool
		Inside     tokenize.Inside // the values from inside the calls that rows keep
		Share      Share
	}
	Run struct {
		Preflight      Preflight
		CheckFull      bool // true: compare all digests before a run is resumed; false: compare only sizes before, and digests during the run
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

// A RewardConfig contains the settings reward.*.
type RewardConfig struct {
	Scorer
	Components       []Component // of RewardComponents, in the order of their names
	Processes        int
	Timeout          time.Duration // timeout of one score from a program
	IncludeReasoning bool
	MinStd           float64 // minimum standard deviation of a group's rewards; 0: no filter
}

// Groups reports whether the run commits whole groups even without --stream.
func (c *Config) Groups() bool { return c.Tasks.UntilGroups > 0 || c.Reward.MinStd > 0 }

// Release returns the version of the transformers library whose rules are used to render templates.
// If tokens.transformers is not set, it returns the oldest supported version.
func (c *Config) Release() chat.Transformers {
	if c.Tokens.Transformers == nil {
		return chat.Transformers457
	}
	return *c.Tokens.Transformers
}

// Releases returns the versions of the transformers library that the server might use, or nil for
// all supported versions.
func (c *Config) Releases() []chat.Transformers {
	if c.Tokens.Transformers == nil {
		return nil
	}
	return []chat.Transformers{*c.Tokens.Transformers}
}
