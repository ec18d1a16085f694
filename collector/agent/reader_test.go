package agent_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/tokenize"
)

// driven is an agent that another program drives, with a reader of its server runs.
type driven struct {
	t      *testing.T
	client *letta.Client // of the other program
	reader *agent.Reader // sends only GETs
	agent  string
}

func drive(t *testing.T, cfg lettasim.Config) *driven {
	t.Helper()
	own := letta.ClientConfig{BaseURL: simulated(t, cfg, nil).web.URL, ReadRetries: -1}
	d := &driven{t: t, client: newClient(t, own)}
	own.Observe = func(ctx context.Context, op, method string) (context.Context, func(letta.Exchange)) {
		if method != http.MethodGet {
			t.Errorf("the reader sends %s: %s", method, op)
		}
		return ctx, func(letta.Exchange) {}
	}
	d.reader = agent.NewReader(newClient(t, own), agent.ReaderConfig{})
	state, err := d.client.CreateAgent(t.Context(), json.RawMessage(`{"model":"`+model.Model+`","metadata":{"rollout":{"task_id":"sums"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	d.agent = state.ID
	return d
}

// send ignores errors.
func (d *driven) send(text string) *letta.LettaResponse {
	d.t.Helper()
	answer, _ := d.client.Send(d.t.Context(), d.agent, &letta.LettaRequest{Messages: letta.InputMessages{letta.UserText(text)}}, "", new(tokenize.Reply))
	return answer
}

func (d *driven) read() (*collector.Reply, error) {
	d.t.Helper()
	run, err := d.client.LastRun(d.t.Context(), d.agent)
	if err != nil || run == nil {
		d.t.Fatal(run, err)
	}
	return d.readRun(run.ID)
}

func (d *driven) readRun(id string) (*collector.Reply, error) {
	d.t.Helper()
	task := &collector.Task{ID: id, Samples: 1, Recorded: &collector.Recorded{Server: "s", Run: id}}
	g, err := d.reader.Open(d.t.Context(), collector.Attempt{Task: task, Key: "k-0", GroupSize: 1, N: 1})
	if err != nil {
		return nil, err
	}
	if g.ID() != "" {
		d.t.Errorf("the agent of a reader has the id %q", g.ID())
	}
	d.t.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			d.t.Error(err)
		}
	})
	return g.Run(d.t.Context())
}

// wants checks the class, the reason and the text of an error, and that it is not retried.
func (d *driven) wants(err error, class collector.Class, reason tokenize.Reason, text string) {
	d.t.Helper()
	ends(d.t, err, class, text)
	if got := collector.ReasonOf(err); got != reason || class.Retryable() {
		d.t.Errorf("%v: reason %v, want %v; retryable %t", err, got, reason, class.Retryable())
	}
	if collector.Redacted(err) == "" {
		d.t.Errorf("%v: must not be shown", err)
	}
}

var several = lettasim.Script{Calls: lettasim.Range{Min: 3, Max: 3}, Tokens: lettasim.Range{Min: 8, Max: 30}, ThinkTokens: lettasim.Range{Min: 1, Max: 8}}

// TestReader checks that the reply equals the answer and has the server's times.
func TestReader(t *testing.T) {
	t.Parallel()
	d := drive(t, lettasim.Config{Script: several})
	first := d.send("Add 2 and 3.")
	run := first.RunID()
	second := d.send("Add 4 and 5.")
	for i, x := range []struct {
		run    string
		answer *letta.LettaResponse
	}{{run, first}, {second.RunID(), second}} {
		reply, err := d.readRun(x.run)
		if err != nil {
			t.Fatal(err)
		}
		if len(reply.Sends) != 1 || reply.Sends[0].RunID != x.run || reply.Sends[0].FromRecord || len(reply.Missing) > 0 ||
			reply.Sends[0].StopReason != string(x.answer.StopReason) || reply.AgentID != d.agent || reply.Model != model.Model || reply.Started.IsZero() {
			t.Errorf("send %d: %+v", i, reply)
		}
		if u := reply.Sends[0].Usage; u.CompletionTokens != x.answer.Usage.CompletionTokens || u.PromptTokens != x.answer.Usage.PromptTokens || u.Steps != x.answer.Usage.StepCount {
			t.Errorf("send %d: %+v, want %+v", i, u, x.answer.Usage)
		}
		if reply.Output != x.answer.Output() || len(reply.Messages) == 0 {
			t.Errorf("send %d: %q, %s", i, reply.Output, reply.Messages)
		}
	}
}

// TestReaderReasons checks the reason for each gap of the record.
func TestReaderReasons(t *testing.T) {
	t.Parallel()
	t.Run("deleted", func(t *testing.T) {
		t.Parallel()
		d := drive(t, lettasim.Config{Script: several})
		run := d.send("Add 2 and 3.").RunID()
		if err := d.client.DeleteAgent(t.Context(), d.agent); err != nil {
			t.Fatal(err)
		}
		_, err := d.readRun(run)
		d.wants(err, collector.ClassNoTurns, tokenize.ReasonDeleted, "server run "+run+" or its agent was deleted before it was read")
	})
	t.Run("no traces", func(t *testing.T) {
		t.Parallel()
		d := drive(t, lettasim.Config{Script: several, NoTraces: true})
		d.send("Add 2 and 3.")
		_, err := d.read()
		d.wants(err, collector.ClassNoTurns, tokenize.ReasonNoTrace, "has no trace")
	})
	t.Run("unfinished", func(t *testing.T) {
		t.Parallel()
		d := drive(t, lettasim.Config{Script: several, Latency: lettasim.Latency{Low: time.Hour}})
		ctx, cancel := context.WithCancel(t.Context())
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = d.client.Send(ctx, d.agent, &letta.LettaRequest{Messages: letta.InputMessages{letta.UserText("Hi.")}}, "", new(tokenize.Reply))
		}()
		for run, err := d.client.LastRun(t.Context(), d.agent); run == nil && err == nil; run, err = d.client.LastRun(t.Context(), d.agent) {
			time.Sleep(time.Millisecond)
		}
		_, err := d.read()
		d.wants(err, collector.ClassNoTurns, tokenize.ReasonUnfinished, "has status created and has not ended")
		cancel()
		<-sent
	})
	t.Run("not ours", func(t *testing.T) {
		t.Parallel()
		d := drive(t, lettasim.Config{})
		_, err := d.reader.Open(t.Context(), scripted(0))
		ends(t, err, collector.ClassBadRequest, "")
	})
	for kind, text := range map[lettasim.FaultKind]string{
		lettasim.EngineDown: "has status failed: Server error '503 Service Unavailable'", lettasim.NullCall: "has status failed: 1 validation error for FunctionCall",
		lettasim.AbortEarly: "the engine aborted the call of step",
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			d := drive(t, lettasim.Config{Script: several, Faults: lettasim.Faults{{Kind: kind, Rate: 1}}})
			d.send("Add 2 and 3.")
			_, err := d.read()
			d.wants(err, collector.ClassAgentError, tokenize.ReasonNone, text)
		})
	}
}

// TestReaderMissing checks that a call without a trace is listed and that a failed run keeps its
// tokens.
func TestReaderMissing(t *testing.T) {
	t.Parallel()
	d := drive(t, lettasim.Config{Script: several, Faults: lettasim.Faults{{Kind: lettasim.NaNLogprob, Rate: 1}}})
	d.send("Add 2 and 3.")
	reply, err := d.read()
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, turn := range reply.Sends[0].Turns {
		if turn.Role == tokenize.RoleAssistant {
			calls++
		}
	}
	if len(reply.Missing) != 1 || calls != 2 || reply.Missing[0].Reason != tokenize.ReasonNoTrace || reply.Sends[0].Usage.Steps != 2 || reply.Missing[0].Before > 2 {
		t.Errorf("%d calls, missing %+v, %+v", calls, reply.Missing, reply.Sends[0].Usage)
	}

	d = drive(t, lettasim.Config{Script: several, Faults: lettasim.Faults{{Kind: lettasim.StopCancelled, Rate: 1}}})
	d.send("Add 2 and 3.")
	if reply, err = d.read(); err != nil || reply.Sends[0].StopReason != "cancelled" || len(reply.Sends[0].Turns) == 0 {
		t.Errorf("%+v, %v", reply, err)
	}
}
