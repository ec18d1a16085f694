package collect

import (
	"cmp"
	"fmt"
	"io"
	"os/exec"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/reasoning"
	"github.com/rollout-rl/rollout/collector/reward"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// This file converts the settings into the configurations of the libraries:
//
//	newSettings  tasks.*, tokens.*, reward.*, output.*, server.adaptive, and the limits in run.*
//	newVersions  tokens.policy_version and the settings that depend on it
//	maxUnscored  run.fail_on_error
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
	close     func()           // ends the scorer's processes; can take several seconds
	kill      func()           // kills the scorer's processes at once
}

// newSettings builds the parts of a run that depend only on its settings. The index seen contains
// the calls that the taps recorded. It is nil if there is no tap. The messages of a scoring program
// go to stderr.
func newSettings(c *config.Config, seen *tap.Index, stderr io.Writer) (_ *settings, err error) {
	p := &settings{close: func() {}, kill: func() {}}
	p.prompts = prompt.Config{Force: tokenize.PromptSource(c.Tokens.Prompts), Tap: seen, Unverified: c.Tokens.Require == config.RequireAny}
	if c.Tokens.Tokenizer != "" {
		if p.prompts.Model, err = model.Load("tokens.tokenizer", c.Tokens.Tokenizer, c.Tokens.Experimental, c.Releases()); err != nil {
			return nil, err
		}
		p.prompts.Model.Transformers, p.prompts.Model.Zone = c.Release(), c.Server.Timezone
		p.prompts.Encoder = p.prompts.Model.Tokenizer
		p.model = runfolder.DescribeModel(p.prompts.Model)
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
	p.sink = sink.Config{Format: c.Output.Format, MaxShardBytes: c.Output.ShardBytes, MaxShardAge: c.Output.ShardAge}
	return p, p.addScorer(c, stderr)
}

// leastUnscored is the smallest number of failed scores that ends a run in which no score has
// succeeded. Fewer failures do not end the run, because a scorer that starts slowly can fail on the
// first samples.
const leastUnscored = 16

// maxUnscored returns how many scores can fail before the run ends. The limit applies only until a
// score succeeds.
func maxUnscored(c *config.Config, planned int) int {
	return max(leastUnscored, c.Run.FailOnError.Allowed(planned)+1) - 1
}

// paddedMost is the maximum number of ids that the engine's vocabulary is assumed to add to the
// tokenizer's vocabulary. The limit is used if config.json does not contain the vocabulary size.
// The largest difference among published models is 1,069, for gpt-oss.
const paddedMost = 4096

func alignConfig(c *config.Config, m *prompt.Model) tokenize.AlignConfig {
	out := tokenize.AlignConfig{
		Drift: c.Tokens.Drift, MaxRowTokens: c.Tokens.MaxRowTokens, VocabSize: c.Tokens.VocabSize,
		MaskAfterStop: c.Tokens.MaskAfterStop,
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

// addScorer adds the splitter, which finds the answer in a sample. It also adds the scorer, if one
// is configured.
func (p *settings) addScorer(c *config.Config, stderr io.Writer) error {
	r := &c.Reward
	splitter := reasoning.New(nil)
	if m := p.prompts.Model; m != nil {
		splitter = reasoning.New(&reasoning.Model{Template: m.Template, Tokenizer: m.Tokenizer, Transformers: m.Transformers})
	}
	splitter.Include = r.IncludeReasoning
	p.collector.Splitter = splitter
	switch r.Kind {
	case config.RewardNone:
	case config.RewardExact:
		p.collector.Scorer = reward.Exact{IgnoreCase: r.IgnoreCase}
	case config.RewardContains:
		p.collector.Scorer = reward.Contains{IgnoreCase: r.IgnoreCase}
	case config.RewardNumber:
		p.collector.Scorer = reward.Number{Tolerance: r.Tolerance}
	case config.RewardRegex:
		s, err := reward.NewRegex(r.Pattern)
		if err != nil {
			return exit.Usagef("reward.pattern: %w", err)
		}
		p.collector.Scorer = s
	case config.RewardJSON:
		s, err := reward.NewJSON(r.Path)
		if err != nil {
			return exit.Usagef("reward.path: %w", err)
		}
		p.collector.Scorer = s
	case config.RewardCommand:
		if _, err := exec.LookPath(r.Command[0]); err != nil {
			return exit.Usagef("reward.command: %w", err)
		}
		s, err := reward.NewCommand(reward.CommandConfig{Args: r.Command, Processes: r.Processes, Timeout: r.Timeout, Stderr: stderr})
		if err != nil {
			return exit.Usagef("reward.command: %w", err)
		}
		p.collector.Scorer, p.kill, p.close = s, s.Kill, func() { _ = s.Close() } // an error is harmless, because all scores have been returned
	default:
		return fmt.Errorf("internal error: reward.kind %q is not handled", r.Kind)
	}
	return nil
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
