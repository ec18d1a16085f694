package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// engineOptions are the flags of a simulated engine.
type engineOptions struct {
	dialect        string // empty: simulate a server
	log, tokenizer string
}

// The flags that need --serve-engine, and the other flags that it accepts.
var (
	engineFlags      = []string{"calls-log", "tokenizer"}
	engineAlsoAccept = []string{"serve-engine", "listen", "ready-file", "model", "json"}
)

// check returns an error that lists the flags that do not fit together.
func (o *engineOptions) check(flags *pflag.FlagSet) error {
	var bad exit.Complaints
	flags.Visit(func(f *pflag.Flag) {
		own := slices.Contains(engineFlags, f.Name)
		switch {
		case o.dialect == "" && own:
			bad.Flag(f.Name, errors.New("needs --serve-engine"))
		case o.dialect != "" && !own && !slices.Contains(engineAlsoAccept, f.Name):
			bad.Flag(f.Name, errors.New("is for a simulated server, not for --serve-engine"))
		}
	})
	return bad.Err()
}

// model returns the engine's tokenizer and chat template.
func (o *engineOptions) model() (*bpe.Tokenizer, *chat.Template, error) {
	if o.tokenizer == lettasim.ModelName {
		return enginesim.SmallModel()
	}
	m, err := model.Load("--tokenizer", o.tokenizer, true, nil)
	if err != nil {
		return nil, nil, err
	}
	return m.Tokenizer, m.Template, nil
}

// simulateEngine serves a simulated engine until an interrupt.
func (p *program) simulateEngine(ctx context.Context, o *simulateOptions) error {
	cfg := enginesim.Config{
		Model: cmp.Or(o.Model, "scripted"), MaxModelLen: 1 << 18, Reasoning: true,
	}
	var err error
	if cfg.Dialect, err = enginesim.ParseDialect(o.engine.dialect); err != nil {
		return exit.Usagef("--serve-engine: %w", err)
	}
	cfg.StrictModel = cfg.Dialect == enginesim.DialectVLLM // SGLang accepts every name
	if cfg.Tokenizer, cfg.Template, err = o.engine.model(); err != nil {
		return err
	}
	if o.engine.log != "" {
		log, err := os.Create(o.engine.log)
		if err != nil {
			return exit.With(exit.Storage, err)
		}
		defer log.Close() //nolint:errcheck // every line was written
		cfg.Log = log
	}
	engine, err := enginesim.New(cfg)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	listener, err := listen(ctx, o.listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: engine, ReadHeaderTimeout: time.Minute}
	if err := p.serveUntilInterrupt(ctx, o, listener, server); err != nil {
		return err
	}
	return errors.Join(p.simulatedEngine(o, engine.Calls()), exit.With(exit.Storage, engine.LogError()))
}

// simulatedEngine prints a summary of the calls.
func (p *program) simulatedEngine(o *simulateOptions, calls []enginesim.Call) error {
	var sampled, tokens int64
	faults := map[string]int{}
	for i := range calls {
		if calls[i].Sampled() {
			sampled++
		}
		tokens += int64(len(calls[i].OutputIDs))
		if f := calls[i].Fault; f != "" {
			faults[f]++
		}
	}
	if o.asJSON {
		return p.printJSON(map[string]any{"event": "done", "calls": len(calls), "sampled": sampled, "tokens": tokens, "faults": faults})
	}
	line := fmt.Sprintf("simulated: %s, %d sampled, %s", format.Plural(int64(len(calls)), "call"), sampled, format.Plural(tokens, "token"))
	var each []string
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		each = append(each, fmt.Sprintf("%s %d", name, faults[name]))
	}
	if each != nil {
		line += "; faults: " + strings.Join(each, ", ")
	}
	p.say("%s", line)
	return nil
}
