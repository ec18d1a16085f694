// Package scoring builds the scorer of a run, and the splitter that finds the answer in a sample, from
// the settings reward.*.
package scoring

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/reasoning"
	"github.com/rollout-rl/rollout/collector/reward"
)

// A Scoring scores finished samples.
type Scoring struct {
	Splitter *reasoning.Splitter
	// Scorer scores one sample. Group scores the samples of a group together. At most one of them is not nil.
	// Both are nil if reward.kind is none.
	Scorer collector.Scorer
	Group  reward.GroupScorer
	// Files has the SHA-256, in lower-case hex, of each file of the user that scores depend on: of a Python
	// function, and of each argument of a command that is a file. It is nil if there are none.
	Files map[string]string

	kind     config.Reward
	programs []program
}

// A program is a scorer that runs processes.
type program interface {
	Kill()
	Close() error
}

// New returns the scoring of a run. The model is nil if no tokenizer is configured. The messages of a
// scoring program go to stderr. The caller must call Close.
func New(c *config.Config, m *prompt.Model, stderr io.Writer) (*Scoring, error) {
	r := &c.Reward
	s := &Scoring{Splitter: reasoning.New(nil), kind: r.Kind}
	if m != nil {
		s.Splitter = reasoning.New(&reasoning.Model{Template: m.Template, Tokenizer: m.Tokenizer, Transformers: m.Transformers})
	}
	s.Splitter.Include = r.IncludeReasoning
	var all reward.Components
	groups := false
	for _, one := range r.Scorers() {
		section := "reward."
		if r.Kind == config.RewardComponents {
			section = fmt.Sprintf("reward.components: %q: ", one.Name)
		}
		single, group, err := s.build(r, section, &one.Scorer, stderr)
		if err != nil {
			s.Close() // no process has been started yet
			return nil, err
		}
		if group != nil {
			groups = true
		} else {
			group = reward.Each(single)
		}
		s.Scorer = single
		all = append(all, reward.Component{Name: one.Name, Weight: one.Weight, Scorer: group})
	}
	if r.Kind == config.RewardComponents {
		s.Scorer = all
	}
	if groups {
		s.Scorer, s.Group = nil, all[0].Scorer
		if r.Kind == config.RewardComponents {
			s.Group = all
		}
	}
	return s, nil
}

// build returns one scorer: either a scorer of samples or a scorer of groups. The parameter section is what the
// keys of its settings begin with.
func (s *Scoring) build(r *config.RewardConfig, section string, of *config.Scorer, stderr io.Writer) (collector.Scorer, reward.GroupScorer, error) {
	switch of.Kind {
	case config.RewardExact:
		return reward.Exact{IgnoreCase: of.IgnoreCase}, nil, nil
	case config.RewardContains:
		return reward.Contains{IgnoreCase: of.IgnoreCase}, nil, nil
	case config.RewardNumber:
		return reward.Number{Tolerance: of.Tolerance}, nil, nil
	case config.RewardRegex:
		one, err := reward.NewRegex(of.Pattern)
		return one, nil, usage(section+"pattern", err)
	case config.RewardJSON:
		one, err := reward.NewJSON(of.Path)
		return one, nil, usage(section+"path", err)
	case config.RewardCommand:
		one, err := s.command(r, of.Command, stderr)
		return one, nil, usage(section+"command", err)
	default:
		return s.python(r, section+"kind", of.Kind, stderr)
	}
}

func (s *Scoring) python(r *config.RewardConfig, key string, kind config.Reward, stderr io.Writer) (collector.Scorer, reward.GroupScorer, error) {
	file, function, group := kind.Python()
	if file == "" {
		return nil, nil, fmt.Errorf("internal error: reward.kind %q is not handled", kind)
	}
	cfg := reward.PythonConfig{File: file, Function: function, Processes: r.Processes, Timeout: r.Timeout, Stderr: stderr}
	if _, err := exec.LookPath("python3"); err != nil {
		return nil, nil, exit.Hint(usage(key, err), "install Python, or activate the environment that has it")
	}
	if group {
		one, err := reward.NewPythonGroup(cfg)
		if err != nil {
			return nil, nil, usage(key, err)
		}
		s.programs = append(s.programs, one)
		s.file(file, one.SHA256())
		return nil, one, nil
	}
	one, err := reward.NewPython(cfg)
	if err != nil {
		return nil, nil, usage(key, err)
	}
	s.programs = append(s.programs, one)
	s.file(file, one.SHA256())
	return one, nil, nil
}

func usage(key string, err error) error {
	if err == nil {
		return nil
	}
	return exit.Usagef("%s: %s", key, strings.TrimPrefix(err.Error(), "reward: ")) // the key has the word
}

// maxFile is the maximum size of a file in reward.command that has a digest. Scripts are smaller.
const maxFile = 64 << 20

func (s *Scoring) command(r *config.RewardConfig, args []string, stderr io.Writer) (*reward.Command, error) {
	if _, err := exec.LookPath(args[0]); err != nil {
		return nil, err
	}
	for _, arg := range args {
		if info, err := os.Stat(arg); err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
			continue
		}
		b, err := input.Read(arg, maxFile, input.Wait)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(b)
		s.file(arg, hex.EncodeToString(sum[:]))
	}
	c, err := reward.NewCommand(reward.CommandConfig{Args: args, Processes: r.Processes, Timeout: r.Timeout, Stderr: stderr})
	if err == nil {
		s.programs = append(s.programs, c)
	}
	return c, err
}

func (s *Scoring) file(path, digest string) {
	if s.Files == nil {
		s.Files = map[string]string{}
	}
	s.Files[path] = digest
}

// Close ends the scorer's processes. It can take several seconds. All calls of the scorer must have returned.
func (s *Scoring) Close() {
	var all sync.WaitGroup
	for _, p := range s.programs {
		all.Go(func() { _ = p.Close() }) // an error is harmless, because all scores have been returned
	}
	all.Wait()
}

// Kill kills the scorer's processes at once. Close must still be called.
func (s *Scoring) Kill() {
	for _, p := range s.programs {
		p.Kill()
	}
}

// Checker returns the scorer's check of a task, or nil if it can score every task.
func (s *Scoring) Checker() reward.Checker {
	if c, ok := s.Scorer.(reward.Checker); ok {
		return c
	}
	c, _ := s.Group.(reward.Checker)
	return c
}

// Try scores trial samples of a task. The error has an exit code and a hint.
func (s *Scoring) Try(ctx context.Context, t *collector.Task, trial reward.Trial) error {
	var err error
	if s.Group != nil {
		err = reward.TryGroup(ctx, s.Group, t, trial)
	} else {
		err = reward.Try(ctx, s.Scorer, t, trial)
	}
	if err == nil {
		return nil
	}
	return exit.Hint(exit.Usagef("reward.kind %s: the scorer failed on a trial sample of task %s: %w", s.kind, termsafe.Text(t.ID, 40), err),
		"the scorer must return a finite number for a sample with \"trial\": true; collector/reward/README.md lists the fields")
}

// leastUnscored is the smallest number of failed scores that ends a run in which no score has
// succeeded. Fewer failures do not end the run, because a scorer that starts slowly can fail on the
// first samples.
const leastUnscored = 16

// MaxUnscored returns how many scores can fail before the run ends. The limit applies only until a
// score succeeds.
func MaxUnscored(c *config.Config, planned int) int {
	return max(leastUnscored, c.Run.FailOnError.Allowed(planned)+1) - 1
}
