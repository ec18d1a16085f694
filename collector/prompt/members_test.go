package prompt_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// evidence lists the JSON members that affect a prompt or its proof. A star matches any element of
// a list. If such a member has another type, a call can lose its prompt, or the whole document is
// refused. All other members have no effect, whatever their value.
var evidence = map[string][]string{
	"trace": {
		"/", "/request_json", "/response_json",
		"/request_json/messages", "/request_json/messages/*", "/request_json/messages/*/role", "/request_json/messages/*/content",
		"/request_json/messages/*/tool_call_id", "/request_json/messages/*/tool_calls", "/request_json/messages/*/tool_calls/*",
		"/request_json/messages/*/tool_calls/*/id", "/request_json/messages/*/tool_calls/*/function",
		"/request_json/messages/*/tool_calls/*/function/name", "/request_json/messages/*/tool_calls/*/function/arguments",
		"/request_json/tools", "/request_json/tools/*", "/request_json/tools/*/type", "/request_json/tools/*/function",
		"/request_json/tools/*/function/*", // all of it is printed into the prompt
		"/response_json/output_ids", "/response_json/output_ids/*",
		"/response_json/meta_info/prompt_tokens", "/response_json/meta_info",
	},
	"step": {"/", "/id", "/completion_tokens", "/prompt_tokens"},
	"message": {
		"/", "/message_type", "/step_id", "/run_id", "/content", "/tool_calls", "/tool_calls/*", "/tool_calls/*/name", "/tool_calls/*/arguments", "/tool_calls/*/tool_call_id",
		"/tool_returns", "/tool_returns/*", "/tool_returns/*/tool_return", "/tool_returns/*/status", "/tool_returns/*/tool_call_id", "/status", "/tool_call_id",
	},
	"answer": {
		"/", "/messages", "/messages/*", "/messages/*/message_type", "/messages/*/step_id", "/messages/*/run_id", "/messages/*/content",
		"/messages/*/tool_calls", "/messages/*/tool_calls/*", "/messages/*/tool_calls/*/name", "/messages/*/tool_calls/*/arguments", "/messages/*/tool_calls/*/tool_call_id",
		"/messages/*/tool_returns", "/messages/*/tool_returns/*", "/messages/*/tool_returns/*/tool_return", "/messages/*/tool_returns/*/status", "/messages/*/tool_returns/*/tool_call_id",
		"/messages/*/status", "/messages/*/tool_call_id",
		"/usage", "/usage/prompt_tokens", "/usage/completion_tokens", "/usage/step_count", "/usage/context_tokens",
	},
}

// facts lists the engine's members about the end of the call and its version. They describe the row
// and prove nothing: if they are invalid, only they are unknown.
var facts = []string{
	"/response_json/meta_info/finish_reason", "/response_json/meta_info/finish_reason/type", "/response_json/meta_info/finish_reason/matched",
	"/response_json/meta_info/weight_version", "/response_json/meta_info/weight_versions",
	"/response_json/meta_info/weight_versions/*", "/response_json/meta_info/weight_versions/*/version",
	"/response_json/meta_info/weight_versions/*/start", "/response_json/meta_info/weight_versions/*/end",
}

// starred returns the path with a star for every index and every member of a function's schema.
func starred(path string) string {
	path = tokenizetest.Starred(path)
	if rest, ok := strings.CutPrefix(path, "/request_json/tools/*/function/"); ok && rest != "" {
		return "/request_json/tools/*/function/*"
	}
	return path
}

// TestMembersOfAnotherType replaces each value of each document with values of other types. Only
// for evidence can a document be refused, or a call lose its prompt.
func TestMembersOfAnotherType(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	unused := map[string]bool{}
	for kind, paths := range evidence {
		for _, path := range paths {
			unused[kind+path] = true
		}
	}
	trials := 0
	for _, known := range remembered(t, "single", "tool", "multi") {
		known := withSpans(t, known)
		for _, sources := range [][2]bool{{true, true}, {false, true}} {
			rebuilder := prompt.NewRebuilder(model, sources[0], sources[1])
			whole := known.rebuilt(t, rebuilder)
			if slices.ContainsFunc(whole, func(c tokenize.Call) bool { return c.Grade != tokenize.CountVerified }) {
				t.Fatalf("%s: not all is proven as it is", known.name)
			}
			if !slices.ContainsFunc(whole, func(c tokenize.Call) bool { return len(c.Versions) > 1 && c.Versions[0] == 7 && c.Versions[1] == 8 }) {
				t.Fatalf("%s: no call has the versions of its trace", known.name)
			}
			for _, doc := range documents(known) {
				for path, at := range tokenizetest.Places(t, doc.text) {
					star := starred(path)
					isEvidence := slices.Contains(evidence[doc.kind], star)
					delete(unused, doc.kind+star)
					isFact := doc.kind == "trace" && slices.Contains(facts, star)
					// Each place gets some of the values. All places together get all values.
					some := 4
					if testing.Short() || raceEnabled {
						some = 1
					}
					values := slices.Concat(tokenizetest.OtherTypes, tokenizetest.OtherTypes)[trials%len(tokenizetest.OtherTypes):][:some]
					for _, value := range values {
						if isEvidence && tokenizetest.SameType(value, doc.text[at.From:]) {
							continue // the value is plausible and is believed
						}
						text := doc.text[:at.From] + value + doc.text[at.To:]
						of, calls := known.clone(), []tokenize.Call(nil)
						trials++
						err := doc.put(of, text)
						if err == nil {
							calls, err = rebuilder.Prompts(t.Context(), &of.reply.Reply, of.rollout())
						}
						if err != nil {
							if !isEvidence {
								t.Errorf("%s: %s%s = %.30s: %v", known.name, doc.kind, path, value, err)
							}
							continue
						}
						for i := range calls {
							c, was := calls[i], whole[i]
							if isEvidence && c.Grade == tokenize.Quarantined {
								continue
							}
							if !slices.Equal(c.PromptIDs, known.truths[i].prompt) {
								t.Fatalf("%s: %s%s = %.30s: call %d claims another prompt", known.name, doc.kind, path, value, i)
							}
							if c.Grade != was.Grade || !isFact && !isEvidence && (c.FinishReason != was.FinishReason || c.Version != was.Version || !slices.Equal(c.Versions, was.Versions)) {
								t.Errorf("%s: %s%s = %.30s: call %d is %v %q %d %v, was %v %q %d %v (%s)", known.name, doc.kind, path, value, i,
									c.Grade, c.FinishReason, c.Version, c.Versions, was.Grade, was.FinishReason, was.Version, was.Versions, c.Note)
							}
							for j, v := range c.Versions {
								if want := int32(7 + min(j, 1)); v != -1 && v != want {
									t.Errorf("%s: %s%s = %.30s: call %d token %d has version %d", known.name, doc.kind, path, value, i, j, v)
								}
							}
						}
					}
				}
			}
		}
	}
	for path := range unused {
		t.Errorf("no document has %s", path)
	}
	t.Logf("%d values of another type", trials)
}

// withSpans returns the life with two weight versions in each call.
func withSpans(t *testing.T, known *knownLife) *knownLife {
	t.Helper()
	out := known.clone()
	for id, trace := range out.memory.traces {
		ids := must(must(trace.Response.Parsed())(t).AppendIDs(nil))(t)
		spans := fmt.Sprintf(`"weight_version":"8","weight_versions":[{"version":"7","start":0,"end":1},{"version":"8","start":1,"end":%d}]`, len(ids))
		text := strings.Replace(string(trace.JSON), `"weight_version": "default"`, spans, 1)
		text = strings.Replace(text, `"weight_version":"default"`, spans, 1)
		out.memory.traces[id] = must(letta.Read[letta.ProviderTrace](text))(t)
	}
	return out
}

// A document is a JSON text that prompts are found from.
type document struct {
	kind, text string
	// put replaces the document in a copy of the life.
	put func(of *knownLife, text string) error
}

func documents(known *knownLife) (all []document) {
	add := func(kind string, text letta.RawJSON, put func(of *knownLife, text string) error) {
		all = append(all, document{kind, string(text), put})
	}
	for _, id := range slices.Sorted(maps.Keys(known.memory.traces)) {
		add("trace", known.memory.traces[id].JSON, func(of *knownLife, text string) (err error) {
			of.memory.traces[id], err = letta.Read[letta.ProviderTrace](text)
			return err
		})
	}
	for i := range known.memory.steps {
		for k, step := range known.memory.steps[i] {
			add("step", step.JSON, func(of *knownLife, text string) error { return readInto(&of.memory.steps[i][k], text) })
		}
		for k, message := range known.memory.messages[i] {
			add("message", message.JSON, func(of *knownLife, text string) error { return readInto(&of.memory.messages[i][k], text) })
		}
		add("answer", known.reply.Evidence.Sends[i].Response.JSON, func(of *knownLife, text string) error {
			return readInto(of.reply.Evidence.Sends[i].Response, text)
		})
	}
	return all
}

func readInto[T any](at *T, text string) error {
	v, err := letta.Read[T](text)
	if err == nil {
		*at = *v
	}
	return err
}
