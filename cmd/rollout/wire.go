package main

import (
	"fmt"
	"io"
	"os/exec"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/reward"
	"github.com/rollout-rl/rollout/tokenize"
)

// The words of the configuration become the values of the packages here, and only
// here.

// parts are what a collector is made of besides servers and sink.
type parts struct {
	prompter *prompt.Prompter
	prompts  prompt.Config    // of prompter
	scorer   collector.Scorer // nil: none
	align    tokenize.AlignConfig
	require  *tokenize.Grade
	model    *runfolder.Model // nil: no tokenizer was given
	close    func()           // ends the scorer's processes, which may take some seconds
	kill     func()           // ends them at once
}

// makeParts makes the parts that the configuration names. What a scoring program says
// to people goes to stderr.
func makeParts(c *config.Config, stderr io.Writer) (*parts, error) {
	p := &parts{close: func() {}, kill: func() {}, require: new(c.Require())}
	pc := prompt.Config{Force: tokenize.PromptSource(c.Tokens.Prompts), Unverified: c.Tokens.Require == config.RequireAny}
	var err error
	if c.Tokens.Tokenizer != "" {
		if pc.Model, err = model.Load("tokens.tokenizer", c.Tokens.Tokenizer, c.Tokens.Experimental); err != nil {
			return nil, err
		}
		pc.Encoder = pc.Model.Tokenizer
		p.model = runfolder.DescribeModel(pc.Model)
	}
	if p.prompter, err = prompt.New(pc); err != nil {
		return nil, exit.Hint(exit.Usagef("tokens.prompts: %w", err), "give the folder with the model's tokenizer and chat template with --tokenizer")
	}
	p.prompts = pc
	if c.Reward.Kind == config.RewardCommand {
		if _, err := exec.LookPath(c.Reward.Command[0]); err != nil {
			return nil, exit.Usagef("reward.command: %w", err)
		}
		command, err := reward.NewCommand(reward.CommandConfig{Args: c.Reward.Command, Processes: c.Reward.Processes, Timeout: c.Reward.Timeout, Stderr: stderr})
		if err != nil {
			return nil, exit.Usagef("reward.command: %w", err)
		}
		p.scorer, p.kill, p.close = command, command.Kill, func() { _ = command.Close() } // every score was had
	} else if p.scorer, err = makeScorer(c); err != nil {
		return nil, err
	}
	p.align = tokenize.AlignConfig{Drift: c.Tokens.Drift, MaxRowTokens: c.Tokens.MaxRowTokens, VocabSize: c.Tokens.VocabSize}
	if p.align.VocabSize == 0 && pc.Model != nil {
		p.align.VocabSize = pc.Model.Tokenizer.VocabSize()
	}
	if p.align.Drift == tokenize.DriftRealign {
		p.align.RealignMax = c.Tokens.RealignMax
	}
	return p, nil
}

func makeScorer(c *config.Config) (collector.Scorer, error) {
	switch c.Reward.Kind {
	case config.RewardExact:
		return reward.Exact{IgnoreCase: c.Reward.IgnoreCase}, nil
	case config.RewardContains:
		return reward.Contains{IgnoreCase: c.Reward.IgnoreCase}, nil
	case config.RewardNumber:
		return reward.Number{Tolerance: c.Reward.Tolerance}, nil
	case config.RewardRegex:
		s, err := reward.NewRegex(c.Reward.Pattern)
		if err != nil {
			return nil, exit.Usagef("reward.pattern: %w", err)
		}
		return s, nil
	case config.RewardJSON:
		s, err := reward.NewJSON(c.Reward.Path)
		if err != nil {
			return nil, exit.Usagef("reward.path: %w", err)
		}
		return s, nil
	case config.RewardNone:
		return nil, nil
	}
	return nil, fmt.Errorf("reward.kind %q is not wired", c.Reward.Kind)
}
