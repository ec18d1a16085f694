package preflight

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// trialOn returns a simulated server, and the trial of a run without a tokenizer on it.
func trialOn(t *testing.T, cfg lettasim.Config) (_ *lettasim.Server, _ *Trial, _ Server, said func() string) {
	t.Helper()
	sim, err := lettasim.New(cfg)
	must(t, err)
	client := lettatest.Serve(t, sim.ServeHTTP)
	c := config.NewLoader(func(string) string { return "" }).Config
	c.Server.URLs, c.Agent.Model = []config.Server{{URL: client.BaseURL()}}, "sglang//models/qwen3"
	backend, err := agent.NewBackend(client, agent.Config{Model: c.Agent.Model})
	must(t, err)
	var mu sync.Mutex
	var lines []string
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprintf(format, args...))
	}
	one, err := NewTrial(c, prompt.Config{}, collector.Config{}, &collector.Task{ID: "a", Messages: []string{"Hi.", "And again."}}, say)
	must(t, err)
	said = func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(lines, "\n")
	}
	return sim, one, Drives(backend), said
}

// TestTrialIsBounded checks that the trial waits for a slow engine with a message and a timeout,
// and that the run then starts and the agent is deleted.
func TestTrialIsBounded(t *testing.T) {
	t.Parallel()
	sim, trial, backend, said := trialOn(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: time.Hour}})
	trial.timeout, trial.quiet = 300*time.Millisecond, 10*time.Millisecond
	if answered, err := trial.server(t.Context(), backend, "0.16.7"); err != nil || answered {
		t.Errorf("the run is refused, or has an answer: %v, %v", answered, err)
	}
	for _, want := range []string{"to answer one model call (at most 300ms; --preflight connect skips this call)", "so the run starts without this check: ", "no answer within 300ms"} {
		if !strings.Contains(said(), want) {
			t.Errorf("got %q, want %q", said(), want)
		}
	}
	if s := sim.Stats(); s.AgentsCreated != 1 || s.AgentsAlive != 0 {
		t.Errorf("%d agents were made, %d live", s.AgentsCreated, s.AgentsAlive)
	}
}

// TestTrialMakesOneCall checks that the trial makes one call, even if the task and the agent need
// more. It logs nothing on success, and retries a lost connection.
func TestTrialMakesOneCall(t *testing.T) {
	t.Parallel()
	lost, err := lettasim.ParseFault("lost@a/-1/1")
	must(t, err)
	sim, trial, backend, said := trialOn(t, lettasim.Config{
		InputIDs: true, Faults: []lettasim.Fault{lost}, Script: lettasim.Script{Calls: lettasim.Range{Min: 4, Max: 4}}, KeepAnswers: true,
	})
	if answered, err := trial.server(t.Context(), backend, "0.16.7"); err != nil || !answered {
		t.Errorf("the run is refused: %v", err)
	}
	if text := said(); strings.Count(text, "\n") != 0 || !strings.Contains(text, "a model call failed, retrying in ") {
		t.Errorf("got %q", text)
	}
	if s := sim.Stats(); s.Answered != 1 || s.AgentsAlive != 0 {
		t.Errorf("%d sends were answered, %d agents live", s.Answered, s.AgentsAlive)
	}
	// Four calls would sample at least 8 tokens each.
	if a := sim.Answers(); len(a) != 1 || a[0].Sample != -1 || a[0].Sampled > 200 {
		t.Errorf("answered: %+v", a)
	}
}

// A clockPrompter leaves the clock of its first prompts ambiguous.
type clockPrompter struct {
	agent.Prompter
	open  int
	calls int
}

func (p *clockPrompter) Prompts(ctx context.Context, r *collector.Reply, of *record.Rollout) ([]tokenize.Call, error) {
	calls, err := p.Prompter.Prompts(ctx, r, of)
	if p.calls++; p.calls <= p.open {
		for i := range calls {
			c := &calls[i]
			c.PromptIDs, c.Source, c.Grade, c.Reason, c.Note = nil, tokenize.SourceNone, tokenize.Quarantined, tokenize.ReasonClock, "several texts are possible"
		}
	}
	return calls, err
}

// TestTrialOfAClock checks the second call of a trial. If the server's time zone is known, one call
// with an ambiguous clock can span midnight, and two cannot. The template then prints the time too
// exactly, and the run would have no rows.
func TestTrialOfAClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		zone  *time.Location
		open  int
		calls int
		want  []string // parts of the error; nil: none
	}{
		{time.UTC, 0, 1, nil},
		{time.UTC, 1, 2, nil},
		{time.UTC, 9, 2, []string{"2 trial calls showed that the run would have no rows: the prompts are unknown: ", "the template prints the time with more precision", "put rollout tap in front of the engine"}},
		{nil, 9, 1, []string{"a trial call showed that the run would have no rows: the prompts are unknown: ", "set server.timezone"}},
	} {
		sim, trial, backend, said := trialOn(t, lettasim.Config{InputIDs: true})
		trial.config.Server.Timezone = tt.zone
		find := &clockPrompter{Prompter: trial.find, open: tt.open}
		trial.find = find
		answered, err := trial.server(t.Context(), backend, "0.16.7")
		if !answered || (err != nil) != (tt.want != nil) || said() != "" || find.calls != tt.calls {
			t.Errorf("%d open with zone %v: %d calls, %v, %v, got %q", tt.open, tt.zone, find.calls, answered, err, said())
		}
		for _, want := range tt.want {
			if text := fmt.Sprint(err, "\n", exit.HintOf(err)); err == nil || !strings.Contains(text, want) {
				t.Errorf("%d open with zone %v: %s, want %q", tt.open, tt.zone, text, want)
			}
		}
		if s := sim.Stats(); int(s.AgentsCreated) != tt.calls || s.AgentsAlive != 0 {
			t.Errorf("%d agents were made, %d live", s.AgentsCreated, s.AgentsAlive)
		}
	}
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
