package proxy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// answered has answers with everything that a dialect parses. evidence lists the members that form
// or prove the tokens. facts lists other members of the call.
var answered = []struct {
	dialect         dialect
	text            string
	evidence, facts []string
}{
	{
		sglang{},
		`{"text":"x","output_ids":[785,2629],"prompt_token_ids":[1,2],"meta_info":{"id":"a","finish_reason":{"type":"stop","matched":2629},"prompt_tokens":2,"weight_version":"8",` +
			`"weight_versions":[{"version":"7","start":0,"end":1},{"version":"8","start":1,"end":2}],"total_retractions":0,"input_token_logprobs":[],` +
			`"output_token_logprobs":[[-0.5,785,null],[-1.5,2629,null]],"completion_tokens":2,"cached_tokens":0,"e2e_latency":0.5},"index":0}`,
		[]string{
			"/", "/output_ids", "/output_ids/*", "/prompt_token_ids", "/prompt_token_ids/*", "/meta_info", "/meta_info/prompt_tokens",
			"/meta_info/output_token_logprobs", "/meta_info/output_token_logprobs/*", "/meta_info/output_token_logprobs/*/*",
		},
		[]string{
			"/meta_info/finish_reason", "/meta_info/finish_reason/type", "/meta_info/finish_reason/matched", "/meta_info/completion_tokens", "/meta_info/cached_tokens",
			"/meta_info/weight_version", "/meta_info/weight_versions", "/meta_info/weight_versions/*",
			"/meta_info/weight_versions/*/version", "/meta_info/weight_versions/*/start", "/meta_info/weight_versions/*/end",
		},
	},
	{
		openai{},
		`{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"x","tool_calls":null},` +
			`"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]},{"token":"b","logprob":-1.5}]},"finish_reason":"stop","stop_reason":6,"token_ids":[5,6]}],` +
			`"prompt_token_ids":[1,2],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":1}},` +
			`"metadata":{"weight_version":"8"},"sglext":{"weight_version":"8","weight_versions":[{"version":"7","start":0,"end":1},{"version":"8","start":1,"end":2}]}}`,
		[]string{
			"/", "/choices", "/choices/*", "/choices/*/index", "/choices/*/token_ids", "/choices/*/token_ids/*", "/prompt_token_ids", "/prompt_token_ids/*",
			"/choices/*/logprobs", "/choices/*/logprobs/content", "/choices/*/logprobs/content/*", "/choices/*/logprobs/content/*/logprob", "/usage", "/usage/prompt_tokens",
		},
		[]string{
			"/choices/*/finish_reason", "/choices/*/stop_reason", "/usage/completion_tokens", "/usage/prompt_tokens_details", "/usage/prompt_tokens_details/cached_tokens",
			"/metadata", "/metadata/weight_version", "/sglext", "/sglext/weight_version", "/sglext/weight_versions", "/sglext/weight_versions/*",
			"/sglext/weight_versions/*/version", "/sglext/weight_versions/*/start", "/sglext/weight_versions/*/end",
		},
	},
}

// TestAnswerMembersOfAnotherType replaces each value of an answer by a value of another type.
// Tokens and log-probabilities are lost only if the value is evidence. No token gets a version that
// the engine did not name.
func TestAnswerMembersOfAnotherType(t *testing.T) {
	t.Parallel()
	for _, a := range answered {
		read := func(text string) *tap.Call {
			c := &tap.Call{Prompt: []int32{1, 2}, Matched: -1, PromptTokens: -1, OutputTokens: -1, Cached: -1}
			r := newReader(a.dialect, false)
			defer r.close()
			r.write([]byte(text))
			r.end()
			_, _ = r.call(c, nil)
			c.Prompt, c.Output, c.Logprobs = slices.Clone(c.Prompt), slices.Clone(c.Output), slices.Clone(c.Logprobs)
			return c
		}
		tokens := func(c *tap.Call) string { return fmt.Sprint(c.Prompt, c.Output, c.Logprobs) }
		whole := read(a.text)
		if len(whole.Output) != 2 || whole.Logprobs[1] != -1.5 || len(whole.Versions) != 2 {
			t.Fatalf("%s: %+v", a.dialect.name(), whole)
		}
		for path, at := range tokenizetest.Places(t, a.text) {
			star := tokenizetest.Starred(path)
			for _, value := range tokenizetest.OtherTypes {
				c := read(a.text[:at.From] + value + a.text[at.To:])
				what := fmt.Sprintf("%s: %s = %.30s", a.dialect.name(), path, value)
				isEvidence := slices.Contains(a.evidence, star)
				if !isEvidence && tokens(c) != tokens(whole) {
					t.Errorf("%s: the tokens are %s, want %s", what, tokens(c), tokens(whole))
				}
				if isEvidence || !slices.Contains(a.facts, star) {
					if !isEvidence && show(c) != show(whole) {
						t.Errorf("%s: %s\nwant %s", what, show(c), show(whole))
					}
					continue
				}
				if star == "/sglext" || value == "null" {
					continue // there are no spans
				}
				one, each := tokenize.OutputVersions(c.Version, c.Versions, len(c.Output))
				for i, v := range each {
					if v != -1 && v != int32(7+i) {
						t.Errorf("%s: token %d has version %d", what, i, v)
					}
				}
				if one != -1 {
					t.Errorf("%s: all tokens have version %d", what, one)
				}
			}
		}
	}
}
