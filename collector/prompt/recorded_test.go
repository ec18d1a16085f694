package prompt_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/prompt/prompttest"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

const testdata = "../../testdata"

// must returns the value of a call that must not fail: must(os.ReadFile(path))(t).
func must[T any](value T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}

// qwen3 returns the model of the recordings.
func qwen3(tb testing.TB) *prompt.Model {
	tb.Helper()
	m := prompttest.Qwen3(tb)
	return &prompt.Model{Template: m.Template, Tokenizer: m.Tokenizer}
}

func parseTemplate(tb testing.TB, name, source string, opts chat.Options) *chat.Template {
	tb.Helper()
	return must(chat.Parse(name, source, opts))(tb)
}

func newPrompter(tb testing.TB, cfg prompt.Config) *prompt.Prompter {
	tb.Helper()
	return must(prompt.New(cfg))(tb)
}

func newBackend(tb testing.TB, client *letta.Client, cfg agent.Config) *agent.Backend {
	tb.Helper()
	return must(agent.NewBackend(client, cfg))(tb)
}

// A recording contains what the tests know of a recorded life and a client does not.
type recording struct {
	name      string
	Exchanges []struct {
		Request struct {
			Path string
			Body json.RawMessage
		}
		ModelCalls []struct {
			Path     string
			InputIDs []int32 `json:"input_ids"`
			Status   int
			Response struct {
				OutputIDs []int32 `json:"output_ids"`
				MetaInfo  struct {
					FinishReason struct{ Type string } `json:"finish_reason"`
					Version      string                `json:"weight_version"`
					Logprobs     [][]*float32          `json:"output_token_logprobs"` // and more elements
				} `json:"meta_info"`
			}
		} `json:"model_calls"`
		Response struct {
			Status int
			Body   json.RawMessage
		}
		Runs []struct {
			Traces []json.RawMessage
		}
	}
}

func recordings(tb testing.TB) []recording {
	tb.Helper()
	return must(readRecordings())(tb)
}

// provable returns the recordings with the prompts that the engine received.
func provable(tb testing.TB) []recording {
	tb.Helper()
	return slices.DeleteFunc(slices.Clone(recordings(tb)), func(r recording) bool {
		return len(r.truths()) == 0 || r.name == "logprobs-only"
	})
}

var readRecordings = sync.OnceValues(func() ([]recording, error) {
	files, err := filepath.Glob(filepath.Join(testdata, "letta/*.json.gz"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, errors.New("no recordings"))
	}
	var all []recording
	for _, file := range files {
		r := recording{name: strings.TrimSuffix(filepath.Base(file), ".json.gz")}
		raw, err := tokenizetest.Recording(file)
		if err := errors.Join(err, json.Unmarshal(raw, &r)); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if r.Exchanges != nil {
			all = append(all, r)
		}
	}
	return all, nil
})

// recordingOf returns the recording of this name.
func recordingOf(tb testing.TB, name string) *recording {
	tb.Helper()
	all := recordings(tb)
	i := slices.IndexFunc(all, func(r recording) bool { return r.name == name })
	if i < 0 {
		tb.Fatalf("no recording %s", name)
	}
	return &all[i]
}

var readCases = sync.OnceValues(func() ([]*lettasim.Case, error) {
	return lettasim.LoadCases(os.DirFS(testdata), "letta")
})

// simulate returns a simulated server that plays the recording of this name.
func simulate(tb testing.TB, cfg lettasim.Config, name string) *lettasim.Server {
	tb.Helper()
	all := must(readCases())(tb)
	i := slices.IndexFunc(all, func(c *lettasim.Case) bool { return c.Name == name })
	if i < 0 {
		tb.Fatalf("no recording %s", name)
	}
	cfg.Cases = all[i : i+1]
	return must(lettasim.New(cfg))(tb)
}

// dial serves the handler until the test ends, and returns a client of it.
func dial(tb testing.TB, server http.Handler, cfg letta.ClientConfig) *letta.Client {
	tb.Helper()
	web := httptest.NewServer(server)
	tb.Cleanup(web.Close)
	cfg.BaseURL = web.URL
	client := must(letta.NewClient(cfg))(tb)
	tb.Cleanup(client.CloseIdle)
	return client
}

// A truth is what the engine received for one call that became a turn.
type truth struct {
	prompt, output []int32
	hasTrace       bool
}

func (r *recording) truths() []truth {
	var all []truth
	for _, e := range r.Exchanges {
		if e.Response.Status != 200 {
			continue
		}
		step := 0
		for _, c := range e.ModelCalls {
			if c.Path != "/generate" {
				continue
			}
			if c.Status == 200 && len(c.Response.OutputIDs) > 0 {
				traced := step < len(e.Runs[0].Traces) && !bytes.Equal(e.Runs[0].Traces[step], []byte("null"))
				all = append(all, truth{c.InputIDs, c.Response.OutputIDs, traced})
			}
			step++
		}
	}
	return all
}

// live plays one recorded life over HTTP, request by request, and returns what a collector gets.
// The agent exists until the test ends.
func live(tb testing.TB, rec *recording) *prompt.Answered {
	tb.Helper()
	return liveOn(tb, simulate(tb, lettasim.Config{}, rec.name), rec)
}

func liveOn(tb testing.TB, server *lettasim.Server, rec *recording) *prompt.Answered {
	tb.Helper()
	client := dial(tb, server, letta.ClientConfig{})
	ctx := tb.Context()
	agent := must(client.CreateAgent(ctx, json.RawMessage(`{"model":"sglang//models/qwen3","metadata":{"rollout":{"task_id":"`+rec.name+`"}}}`)))(tb)
	e := record.New(client)
	e.Agent, e.SystemText = agent, must(client.SystemText(ctx, agent.MessageIDs[0]))(tb)
	reply := &prompt.Answered{Reply: collector.Reply{AgentID: agent.ID}, Evidence: e, Client: client}
	for _, x := range rec.Exchanges {
		request, body := lettatest.Request(tb, x.Request.Body), new(tokenize.Reply)
		send := letta.SendOptions{
			AgentID: agent.ID, Request: request, RequestID: "test", Reply: func() *tokenize.Reply { return body },
		}
		if strings.Contains(x.Request.Path, "/conversations/") {
			if e.Conversation == nil {
				e.Conversation = must(client.CreateConversation(ctx, agent.ID))(tb)
			}
			send.ConversationID = e.Conversation.ID
		}
		answer, err := client.SendWith(ctx, send)
		if err != nil {
			continue // recorded as an error; its turns are lost
		}
		runID := answer.RunID()
		if runID == "" {
			runID = must(client.LastRun(ctx, agent.ID))(tb).ID
		}
		e.Sends = append(e.Sends, record.Send{Request: request, Response: answer, RunID: runID})
		reply.Sends = append(reply.Sends, collector.Send{Turns: body.Turns, RunID: runID})
	}
	return reply
}

// TestRecordedPrompts rebuilds the prompt of every recorded call from each source and compares it
// with the engine's prompt, id by id.
func TestRecordedPrompts(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	type tally struct{ calls, exact, lost int }
	for _, test := range []struct {
		source tokenize.PromptSource
		want   tally // over all recordings; calls that cannot be proven are lost
	}{
		// The prompt of nan is rebuilt correctly, but nothing proves it: the only trace that shows
		// the order of its two tools is lost because of the NaN.
		{tokenize.SourceStored, tally{77, 74, 3}},
		{tokenize.SourceTrace, tally{77, 73, 4}},
		{tokenize.SourceNone, tally{77, 74, 3}},
	} {
		t.Run("source="+test.source.String(), func(t *testing.T) {
			t.Parallel()
			var got tally
			for _, rec := range provable(t) {
				truths := rec.truths()
				reply := live(t, &rec)
				p := newPrompter(t, prompt.Config{Force: test.source, Model: model})
				calls, err := p.Prompts(t.Context(), &reply.Reply, reply.Evidence)
				if err != nil {
					t.Errorf("%s: %v", rec.name, err)
					continue
				}
				if len(calls) != len(truths) {
					t.Errorf("%s: %d calls, recorded %d", rec.name, len(calls), len(truths))
					continue
				}
				checkOwned(t, rec.name, reply, calls)
				for i := range calls {
					got.calls++
					switch {
					case calls[i].Grade == tokenize.Quarantined:
						got.lost++
						t.Logf("%s call %d: lost: %v (trace %v)", rec.name, i, calls[i].Reason, truths[i].hasTrace)
					case !slices.Equal(calls[i].PromptIDs, truths[i].prompt):
						t.Errorf("%s call %d: %v claims %d ids that the model did not see (it saw %d)", rec.name, i, calls[i].Source, len(calls[i].PromptIDs), len(truths[i].prompt))
					default:
						got.exact++
						if calls[i].Grade != tokenize.CountVerified {
							t.Errorf("%s call %d: grade %v", rec.name, i, calls[i].Grade)
						}
					}
				}
			}
			if got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

// within reports whether text is part of the memory of whole.
func within(text, whole string) bool {
	if text == "" || whole == "" {
		return false
	}
	at, from := uintptr(unsafe.Pointer(unsafe.StringData(text))), uintptr(unsafe.Pointer(unsafe.StringData(whole)))
	return at >= from && at < from+uintptr(len(whole))
}

// checkOwned checks that the strings that rows take from a call do not point into an answer of the
// server. Otherwise a row that waits to be written keeps the answer in memory.
func checkOwned(t *testing.T, name string, reply *prompt.Answered, calls []tokenize.Call) {
	t.Helper()
	var bodies []letta.RawJSON
	for _, s := range reply.Evidence.Sends {
		bodies = append(bodies, s.Response.JSON)
		if s.RunID == "" {
			continue
		}
		steps := must(reply.Evidence.Run(s.RunID).Steps(t.Context()))(t)
		for i := range steps {
			bodies = append(bodies, steps[i].JSON)
			trace := must(reply.Evidence.Trace(t.Context(), steps[i].ID))(t)
			if trace == nil {
				continue
			}
			if answer, err := trace.Answer(); err == nil {
				bodies = append(bodies, letta.RawJSON(answer.Finish))
			}
		}
	}
	for i := range calls {
		for _, body := range bodies {
			if within(calls[i].StepID, string(body)) || within(calls[i].FinishReason, string(body)) {
				t.Fatalf("%s: call %d keeps an answer: step %q, finish reason %q", name, i, calls[i].StepID, calls[i].FinishReason)
			}
		}
	}
}

// Both recipes return the prompt that the model saw, even if the server read the tools in another
// order than it showed at creation.
func TestExamine(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	for _, name := range []string{"tool-two", "multi"} {
		rec := recordingOf(t, name)
		reply := live(t, rec)
		slices.Reverse(reply.Evidence.Agent.Tools)
		examined := must(prompt.Examine(t.Context(), model, &reply.Reply, reply.Evidence))(t)
		for i, want := range rec.truths() {
			if !slices.Equal(examined[i].Stored.IDs, want.prompt) || !slices.Equal(examined[i].Trace.IDs, want.prompt) {
				t.Errorf("%s: call %d: the model saw another prompt", name, i)
			}
		}
	}
}
