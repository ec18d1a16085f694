package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// A recording is the part of a recorded exchange that the end-to-end tests use. This code does not
// use the product's decoders: it derives the expected sample a second time, from the engine's own
// requests and answers.
type recording struct {
	name      string
	Exchanges []struct {
		Request struct {
			Body struct {
				Messages []struct{ Type, Role string }
			}
		}
		Response struct {
			Status int
			Body   json.RawMessage
		}
		ModelCalls []struct {
			Path     string
			Status   int
			InputIDs []int32 `json:"input_ids"`
			Response json.RawMessage
		} `json:"model_calls"`
	}
}

func recordings(t *testing.T) []*recording {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(exchangesDir, "*.json.gz"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	var all []*recording
	for _, path := range files {
		b, err := tokenizetest.Recording(path)
		if err != nil {
			t.Fatal(err)
		}
		r := &recording{name: strings.TrimSuffix(filepath.Base(path), ".json.gz")}
		if err := json.Unmarshal(b, r); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(r.Exchanges) > 0 {
			all = append(all, r)
		}
	}
	return all
}

// A wanted is the sample that a recording implies.
type wanted struct {
	sends  int
	status string // of the last send
	reason string // of the last send

	prompt, completion int64 // totals from the server
	steps              int32

	ids      []int32    // sampled ids of all calls
	logprobs []*float64 // of ids
	rows     []wantedRow
}

type wantedRow struct {
	ids      []int32
	mask     []int8
	logprobs []float32
	offsets  []int32
	roles    []int8
	calls    int
	finish   []string // the engine's finish reasons
	unscored int32
	flags    []string
	forkCall int // the call that forked, or -1
	forkAt   int // first position where its prompt differs from the row before
}

const (
	rolePrompt, roleAssistant, roleTool, roleUser = 0, 1, 2, 3
)

// want derives the sample: its sends by the rules of a rollout, its calls by the rules of rows, and
// then its tokens. clientTools reports whether client tools are configured.
func (r *recording) want(t *testing.T, clientTools bool) *wanted {
	t.Helper()
	w := &wanted{}
	var open *wantedRow // the row that the next prompt can continue
	tool := false       // a tool turn is between the last call and the next
	call := 0
	client := false // the result of a client tool was sent
	for i, x := range r.Exchanges {
		if x.Response.Status != 200 {
			t.Fatalf("%s: send %d was answered with %d", r.name, i, x.Response.Status)
		}
		var body struct {
			Turns []struct{ Role string }
			Usage struct {
				Prompt     int64 `json:"prompt_tokens"`
				Completion int64 `json:"completion_tokens"`
				Steps      int32 `json:"step_count"`
			}
			Stop struct {
				Reason string `json:"stop_reason"`
			} `json:"stop_reason"`
		}
		if err := json.Unmarshal(x.Response.Body, &body); err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		w.sends++
		for _, m := range x.Request.Body.Messages {
			client = client || m.Type == "tool_return"
		}
		w.reason = body.Stop.Reason
		w.prompt += body.Usage.Prompt
		w.completion += body.Usage.Completion
		w.steps += body.Usage.Steps

		at := 0
		for _, m := range x.ModelCalls {
			if m.Path != "/generate" || m.Status != 200 {
				continue
			}
			var answer struct {
				IDs  []int32 `json:"output_ids"`
				Meta struct {
					Logprobs [][3]*float64 `json:"output_token_logprobs"`
					Finish   struct {
						Type string
					} `json:"finish_reason"`
				} `json:"meta_info"`
			}
			if err := json.Unmarshal(m.Response, &answer); err != nil {
				t.Fatalf("%s: %v", r.name, err)
			}
			for ; at < len(body.Turns) && body.Turns[at].Role == "tool"; at++ {
				tool = true
			}
			at++ // the assistant turn of this call

			switch n := diverges(open, m.InputIDs); {
			case open == nil:
				open = newWantedRow(m.InputIDs, -1, 0)
			case n == len(open.ids) && n < len(m.InputIDs):
				role := int8(roleUser)
				if tool {
					role = roleTool
				}
				open.context(m.InputIDs[n:], role)
			default:
				w.rows = append(w.rows, *open)
				open = newWantedRow(m.InputIDs, call, n)
			}
			tool = false
			call++
			open.calls++
			open.finish = append(open.finish, answer.Meta.Finish.Type)
			if client {
				open.flags = []string{"client_tool_context"}
			}
			for j, id := range answer.IDs {
				lp := answer.Meta.Logprobs[j][0]
				w.ids, w.logprobs = append(w.ids, id), append(w.logprobs, lp)
				open.sampled(id, lp)
			}
			open.end(roleAssistant)
		}
		for ; at < len(body.Turns); at++ {
			tool = tool || body.Turns[at].Role == "tool"
		}
		if !r.goesOn(i, w.reason, clientTools) {
			break
		}
	}
	if open != nil {
		w.rows = append(w.rows, *open)
	}
	w.rows = slices.DeleteFunc(w.rows, func(r wantedRow) bool { return !slices.Contains(r.mask, 1) })
	for i := range w.rows {
		if r := &w.rows[i]; r.truncated() {
			r.flags = append(r.flags, "length")
		}
	}
	w.status = map[string]string{
		"end_turn": "completed", "tool_rule": "completed", "max_steps": "max_steps", "max_tokens_exceeded": "truncated",
	}[w.reason]
	return w
}

// goesOn reports whether another send follows send i. The next message of the task follows only
// after a normal end of the agent. An answer follows if the server asked for one that the run can
// give.
func (r *recording) goesOn(i int, stop string, clientTools bool) bool {
	if i+1 == len(r.Exchanges) {
		return false
	}
	answers := false
	for _, m := range r.Exchanges[i+1].Request.Body.Messages {
		answers = answers || m.Type == "approval" || m.Type == "tool_return" && clientTools
	}
	return stop == "end_turn" || stop == "requires_approval" && answers
}

func newWantedRow(prompt []int32, forkCall, forkAt int) *wantedRow {
	r := &wantedRow{offsets: []int32{0}, forkCall: forkCall, forkAt: forkAt}
	r.context(prompt, rolePrompt)
	return r
}

// truncated reports whether the engine's limit ended the row's last output.
func (r *wantedRow) truncated() bool { return r.finish[len(r.finish)-1] == "length" }

func (r *wantedRow) context(ids []int32, role int8) {
	for _, id := range ids {
		r.ids, r.mask, r.logprobs = append(r.ids, id), append(r.mask, 0), append(r.logprobs, 0)
	}
	r.end(role)
}

func (r *wantedRow) sampled(id int32, logprob *float64) {
	r.ids = append(r.ids, id)
	if logprob == nil {
		r.mask, r.logprobs = append(r.mask, 0), append(r.logprobs, 0)
		r.unscored++
		return
	}
	r.mask, r.logprobs = append(r.mask, 1), append(r.logprobs, float32(*logprob))
}

func (r *wantedRow) end(role int8) {
	r.offsets, r.roles = append(r.offsets, int32(len(r.ids))), append(r.roles, role)
}

func diverges(r *wantedRow, prompt []int32) int {
	n := 0
	for r != nil && n < len(r.ids) && n < len(prompt) && r.ids[n] == prompt[n] {
		n++
	}
	return n
}
