package prompt_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// TestMutations changes one character of one message, or one byte of the template, and rebuilds.
// Each call is then quarantined, or still has its true prompt, even if the change keeps the count:
// a trace of its send shows another text. The exception is the template, because both texts are
// rendered with it. Only the count can show such a change, and the test logs how often it does not.
func TestMutations(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	trials := 3000
	if testing.Short() || raceEnabled {
		trials = 200
	}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	lives := remembered(t, "single", "tool", "tool-two", "tool-parallel", "tool-args-numbers", "tool-malformed", "tool-unicode",
		"multi", "conversation", "approval", "client-tool-return", "reasoner-on", "empty", "newlines")

	type tally struct{ lost, same, kept, refused int }
	kinds := []string{"template byte", "system", "request", "turn", "stored call", "answered call", "schema"}
	got := make([]tally, len(kinds))
	for range trials {
		known := lives[r.IntN(len(lives))]
		k := r.IntN(len(kinds))
		kind, n := kinds[k], &got[k]
		with, of := model, known
		if kind == "template byte" {
			source := []byte(model.Template.Source())
			source[r.IntN(len(source))] ^= byte(1 + r.IntN(127))
			tmpl, err := chat.Parse("mutated", string(source), chat.Options{MaxSteps: 200_000})
			if err != nil {
				n.refused++
				continue
			}
			with = &prompt.Model{Template: tmpl, Tokenizer: model.Tokenizer}
		} else if of = mutated(r, known, kind); of == nil {
			continue // the life has nothing to change of this kind
		}
		rebuilder := prompt.NewRebuilder(with, true, false)
		if r.IntN(2) == 0 {
			rebuilder.Answers()
		}
		calls, err := rebuilder.Prompts(t.Context(), &of.reply.Reply, of.rollout())
		if err != nil {
			n.refused++
			continue
		}
		for i := range calls {
			truth := known.truths[i].prompt
			switch c := &calls[i]; {
			case c.Grade == tokenize.Quarantined:
				n.lost++
			case c.Grade == tokenize.Exact:
				t.Fatalf("seed %d: %s: %s mutated, and call %d is graded exact", seed, known.name, kind, i)
			case slices.Equal(c.PromptIDs, truth):
				n.same++ // the change does not reach this prompt
			case len(c.PromptIDs) != len(truth):
				t.Fatalf("seed %d: %s: %s mutated, and call %d claims %d ids, but the model saw %d", seed, known.name, kind, i, len(c.PromptIDs), len(truth))
			case kind == "template byte":
				n.kept++
			default:
				t.Fatalf("seed %d: %s: %s mutated, and call %d claims other ids of the same number", seed, known.name, kind, i)
			}
		}
	}
	lost := 0
	for k, kind := range kinds {
		n := got[k]
		lost += n.lost
		t.Logf("%-13s calls lost %5d, unaffected %5d, another prompt of the same count %4d; samples refused %d", kind, n.lost, n.same, n.kept, n.refused)
	}
	if lost < trials/4 {
		t.Errorf("%d calls were lost to %d mutations: they do not reach the prompts", lost, trials)
	}
}

// mutated returns a copy of the life with one character changed, or nil.
func mutated(r *rand.Rand, known *knownLife, kind string) *knownLife {
	of := known.clone()
	e := of.reply.Evidence
	i := r.IntN(len(e.Sends))
	switch kind {
	case "system":
		if e.Conversation != nil {
			return nil // its system message is read from the server
		}
		e.SystemText = changed(r, e.SystemText)
	case "request":
		c, ok := e.Sends[i].Request.Messages[0].(*letta.MessageCreate)
		if !ok {
			return nil
		}
		copied := *c
		copied.Content = letta.TextOf(changed(r, letta.InputText(c.Content)))
		e.Sends[i].Request.Messages[0] = &copied
	case "turn":
		turns := of.reply.Sends[i].Turns
		t := &turns[r.IntN(len(turns))]
		t.Content = changed(r, t.Content)
	case "stored call", "answered call":
		list := e.Sends[i].Response.Messages
		if kind == "stored call" {
			list = of.memory.messages[i]
		}
		k := slices.IndexFunc(list, func(m letta.Message) bool { return m.Type == letta.TypeToolCall })
		if k < 0 || len(list[k].ToolCalls) == 0 {
			return nil
		}
		list[k].ToolCalls = slices.Clone(list[k].ToolCalls)
		if c := &list[k].ToolCalls[0]; r.IntN(2) == 0 {
			c.Name = changed(r, c.Name)
		} else {
			c.Arguments = changed(r, c.Arguments)
		}
	case "schema":
		if len(e.Agent.Tools) == 0 {
			return nil
		}
		tool := &e.Agent.Tools[r.IntN(len(e.Agent.Tools))]
		tool.JSONSchema = letta.RawJSON(changed(r, string(tool.JSONSchema)))
	}
	return of
}

// changed returns s with one character replaced, inserted or deleted.
func changed(r *rand.Rand, s string) string {
	letters := []rune("aeintz AZ09.,\n\"{}<|_é漢🙂")
	c := string(letters[r.IntN(len(letters))])
	if s == "" {
		return c
	}
	at := r.IntN(len(s))
	for !utf8.RuneStart(s[at]) {
		at--
	}
	_, size := utf8.DecodeRuneInString(s[at:])
	switch r.IntN(3) {
	case 0:
		return s[:at] + c + s[at+size:]
	case 1:
		return s[:at] + c + s[at:]
	}
	return s[:at] + s[at+size:]
}

// TestMutatedTokens changes one token in the bytes of a reply. A changed id contradicts its
// log-probability. If both are removed, the step's count is wrong. If both agree on another token,
// the trace of the call contradicts them if it was fetched, and the send has no prompts. Otherwise
// the server is believed, and every prompt is still the true one.
func TestMutatedTokens(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 1))
	lives := map[string]*knownLife{}
	for _, k := range remembered(t, "single", "tool", "tool-two", "tool-parallel", "reasoner-on") {
		lives[k.name] = k
	}
	alone, gone, both, told := 0, 0, 0, 0
	for _, rec := range recordings(t) {
		known := lives[rec.name]
		if known == nil {
			continue
		}
		for range 100 {
			turns := known.reply.Sends[0].Turns
			var said []int
			for i := range turns {
				if turns[i].Role == tokenize.RoleAssistant {
					said = append(said, i)
				}
			}
			i := said[r.IntN(len(said))]
			at := r.IntN(len(turns[i].OutputIDs))
			for _, how := range []string{"alone", "gone", "both"} {
				body := mutateToken(t, rec.Exchanges[0].Response.Body, i, at, how)
				var got tokenize.Reply
				if err := tokenize.NewDecoder(tokenize.DecoderConfig{}).DecodeBytes(body, &got); err != nil {
					t.Fatal(err)
				}
				of := known.clone()
				of.reply.Sends[0].Turns = got.Turns
				rebuilder := prompt.NewRebuilder(model, true, true)
				if r.IntN(2) == 0 {
					rebuilder.Answers()
				}
				calls, err := rebuilder.Prompts(t.Context(), &of.reply.Reply, of.rollout())
				a := (*tokenize.AlignError)(nil)
				switch {
				case how == "alone" && errors.As(err, &a) && a.Reason == tokenize.ReasonIDMismatch:
					alone++
				case how == "gone" && errors.As(err, &a) && a.Reason == tokenize.ReasonHole:
					gone++
				case how == "both" && err == nil:
					both++
					if slices.ContainsFunc(calls, func(c tokenize.Call) bool { return strings.Contains(c.Note, "has different output tokens") }) {
						told++
					}
					for k := range calls {
						if calls[k].Grade != tokenize.Quarantined && !slices.Equal(calls[k].PromptIDs, known.truths[k].prompt) {
							t.Errorf("%s call %d: %v, another prompt", rec.name, k, calls[k].Grade)
						}
					}
				default:
					t.Errorf("%s: token %d of turn %d %s: error %v", rec.name, at, i, how, err)
				}
			}
		}
	}
	if told < both/2 {
		t.Errorf("of %d replies whose ids and log-probabilities agree, the trace contradicted %d", both, told)
	}
	t.Logf("seed %d: refused for the log-probability's id %d, for the step's count %d; with every count equal %d, of which a trace contradicted %d", seed, alone, gone, both, told)
}

// mutateToken changes token at of turn i in the bytes of a reply: only the id, id and
// log-probability, or removes both.
func mutateToken(t *testing.T, body []byte, i, at int, how string) []byte {
	t.Helper()
	reply := lettatest.Tree(t, body).(map[string]any)
	turn := reply["turns"].([]any)[i].(map[string]any)
	ids, logprobs := turn["output_ids"].([]any), turn["output_token_logprobs"].([]any)
	const other = 7
	switch how {
	case "alone":
		ids[at] = other
	case "gone":
		turn["output_ids"], turn["output_token_logprobs"] = slices.Delete(ids, at, at+1), slices.Delete(logprobs, at, at+1)
	case "both":
		ids[at] = other
		logprobs[at].([]any)[1] = other
	}
	return must(json.Marshal(map[string]any{"turns": reply["turns"]}))(t)
}
