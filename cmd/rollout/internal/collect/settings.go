package collect

import (
	"cmp"
	"io"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/scoring"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// This file converts the settings into the configurations of the libraries:
//
//	newSettings  tasks.*, tokens.*, reward.*, output.*, server.adaptive, and the limits in run.*
//	newVersions  tokens.policy_version and the settings that depend on it
//
// Other settings are read elsewhere: server.* and agent.* in package connect, tokens.tap in package
// taps, and server.engine_metrics in planning.bound. Package machine sets the limits on the number
// of samples in flight, and package runfolder sets the file mode.

// settings contains the parts of a run that depend only on its settings.
type settings struct {
	agent     agent.Config
	collector collector.Config // lacks the endpoints, sink, journal and events, which depend on the run
	sink      sink.Config      // lacks the run id, files and events
	prompts   prompt.Config
	prompter  *prompt.Prompter
	model     *runfolder.Model // nil if no tokenizer is configured
	files     *model.Files     // the files of the model; nil if no tokenizer is configured
	scoring   *scoring.Scoring
}

// newSettings builds the parts of a run that depend only on its settings. The index seen contains
// the calls that the taps recorded. It is nil if there is no tap. The messages of a scoring program
// go to stderr.
func newSettings(c *config.Config, seen *tap.Index, stderr io.Writer) (_ *settings, err error) {
	p := &settings{}
	p.prompts = prompt.Config{Force: tokenize.PromptSource(c.Tokens.Prompts), Tap: seen, Unverified: c.Tokens.Require == config.RequireAny}
	if c.Tokens.Tokenizer != "" {
		if p.prompts.Model, p.files, err = model.LoadFiles("tokens.tokenizer", c.Tokens.Tokenizer, c.Tokens.Experimental, c.Releases()); err != nil {
			return nil, err
		}
		p.prompts.Model.Transformers, p.prompts.Model.Zone = c.Release(), c.Server.Timezone
		p.prompts.Encoder = p.prompts.Model.Tokenizer
		p.model = runfolder.DescribeModel(p.prompts.Model)
		if p.model.Files, err = p.files.Digest(); err != nil {
			return nil, exit.Usagef("tokens.tokenizer: %s: %w", c.Tokens.Tokenizer, err)
		}
	}
	if p.prompter, err = prompt.New(p.prompts); err != nil {
		return nil, exit.Hint(exit.Usagef("tokens.prompts: %w", err), "pass the folder of the model's tokenizer and chat template with --tokenizer")
	}
	if p.agent, err = connect.AgentConfig(c); err != nil {
		return nil, err
	}
	p.collector = collector.Config{
		Samples:        c.Tasks.Samples,
		Limit:          c.Tasks.Limit,
		Align:          alignConfig(c, p.prompts.Model),
		Require:        new(c.Require()),
		Messages:       c.Output.Messages,
		Retries:        c.Run.Retries,
		DataRetries:    c.Run.DataRetries,
		MaxFailures:    c.Run.MaxFailures,
		AttemptTimeout: c.Run.AttemptTimeout,
		BusyMax:        c.Run.BusyPatience,
		Adaptive:       c.Server.Adaptive,
		Tail:           c.Run.Tail,
	}
	if c.Tasks.FromRuns != nil {
		p.collector.DataRetries = 0 // rollout cannot repeat the runs of another program
	}
	p.sink = sink.Config{Format: c.Output.Format, MaxShardBytes: c.Output.ShardBytes, MaxShardAge: c.Output.ShardAge, Experts: c.Output.Inside.Experts}
	if p.scoring, err = scoring.New(c, p.prompts.Model, stderr); err != nil {
		return nil, err
	}
	if p.scoring.Group != nil {
		p.scoring.Close()
		return nil, exit.Hint(exit.Usagef("reward.kind: python-group needs all samples of a group, so only rollout rescore can use it"),
			"collect with another --reward or none, and then: rollout rescore RUN --reward python-group:FILE:FUNCTION")
	}
	p.collector.Scorer, p.collector.Splitter = p.scoring.Scorer, p.scoring.Splitter
	return p, nil
}

// paddedMost is the maximum number of ids that the engine's vocabulary is assumed to add to the
// tokenizer's vocabulary. The limit is used if config.json does not contain the vocabulary size.
// The largest difference among published models is 1,069, for gpt-oss.
const paddedMost = 4096

func alignConfig(c *config.Config, m *prompt.Model) tokenize.AlignConfig {
	out := tokenize.AlignConfig{
		Drift: c.Tokens.Drift, MaxRowTokens: c.Tokens.MaxRowTokens, VocabSize: c.Tokens.VocabSize,
		MaskAfterStop: c.Tokens.MaskAfterStop, Inside: c.Output.Inside,
	}
	if m != nil {
		out.TokenizerSize, out.StopIDs = m.Tokenizer.VocabSize(), m.StopIDs
		out.VocabSize = cmp.Or(out.VocabSize, m.VocabSize, out.TokenizerSize+paddedMost)
		if c.Tokens.VocabStrict {
			out.VocabSize = min(out.VocabSize, out.TokenizerSize)
		}
	}
	if out.Drift == tokenize.DriftRealign {
		out.RealignMax = c.Tokens.RealignMax
	}
	return out
}

// newVersions returns the configured source of policy versions, or nil if none is configured.
// Traces that are fetched only to prove prompts do not count as a source. The parameter claims is
// true if the run accepts rollout ctl RUN set-version.
func newVersions(c *config.Config, claims bool, unknown func(text string)) (*policy.Source, error) {
	v := c.Tokens.PolicyVersion
	cfg := policy.Config{
		Version: v.Version, URL: v.URL.Reveal(), Name: v.Shown, OneEngine: c.Tokens.OneEngine,
		Delay: c.Tokens.PolicyVersionDelay, Notice: unknown,
	}
	switch {
	case v.Claimed || cfg.URL != "":
	case v.Traces:
		cfg.Version, cfg.Traces = policy.Unclaimed, true
	case claims:
		cfg.Version = policy.Unclaimed
	default:
		return nil, nil
	}
	s, err := policy.New(cfg)
	if err != nil {
		return nil, exit.Usagef("tokens.policy_version: %w", err)
	}
	return s, nil
}
